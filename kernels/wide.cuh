// Kernels: chains of many states, whose steps all share a matrix.
//
// The matrix is too large for the registers of a block that walks a chain (chain.cuh). So all rows
// go on together: a step is a product, and a kernel that is launched behind it (WideJoin). Over
// log_plus it is a product over plus-times of exponentials: WideStep takes the logarithms, adds the
// emissions, and writes the exponentials for the next product, of how far each entry is below the
// largest one of its row. Sums that are too small to be right are computed term by term, as in
// logsum.cuh.
#pragma once
#include "logsum.cuh"

namespace sr {

// The parameters of launches; the same fields in the same order in semiring_mm/gpu/wide.py. Strides
// in elements.
struct WideParams {
  const void* sums;  // [rows][n] of Compute: the product; none before the first one
  i64 step;          // -1: what is carried before any step
  void* powers;      // [rows][n] of Compute: UP exp(what is carried)
  void* logs;        // [2][rows][n] of Compute: its logarithms, by turns
  double* offsets;   // [rows]: what has been taken off them
  void* lows;        // [rows] of Compute: the least finite one of them
  const void* ends;  // [2][n] of Compute: of the matrix's columns (REVERSE: rows); see Shift
  const void* a;
  const void* e;     // or none
  const void* x;     // what is carried first; none: the first matrix
  const void* end;   // what the last row is joined with, for `total`
  void* y;           // [chains][steps][rows][n]: what is carried; see WIDE_RELATIVE
  const i64* lengths;
  double* levels;    // [chains][steps]
  void* total;       // [chains], or none; on the way back `whole` is read
  double* whole;     // [chains]: the same
  void* states;      // [chains][steps][n]: probabilities
  void* left;        // [chains][steps][n]: times `right` of a step later and the exponentials of the
  void* right;       // matrix, UP of them: probabilities of pairs of states
  void* pairs;       // [chains][n][n], pairs_batch apart: probabilities are added
  const i32* from;   // [rows][n]: the terms that the product chose
  u16* pointers;     // [chains][steps][n]: the state before each
  i32* path;         // [chains][steps]
  i64 a_row, a_col, e_batch, e_step, x_batch, x_row, end_batch, y_batch, y_step, y_row, pairs_batch;
  int n, rows, steps, mode;
};
// Of mode. RELATIVE: y is less what `levels` has.
enum { WIDE_EVERY = 1, WIDE_EXCLUSIVE = 2, WIDE_RELATIVE = 4 };

// A row that is carried, by a block, and the place of a step in its chain.
template <class A, bool REVERSE>
struct WideRow {
  using T = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int THREADS = 256;

  const WideParams& p;
  const i64 row, chain;
  const int within, length, count, at;

  SR_FN explicit WideRow(const WideParams& p)
      : p(p), row(blockIdx.x), chain(row / p.rows), within(int(row % p.rows)),
        length(int(p.lengths[chain])), count(length - (p.mode & WIDE_EXCLUSIVE ? 1 : 0)),
        at(REVERSE ? length - 1 - int(p.step) : int(p.step)) {}

  SR_FN bool active() const { return count > 0 && p.step < count; }
  SR_FN bool last() const { return p.step == count - 1; }
  SR_FN T matrix(int i, int j) const {  // term i of entry j
    return A::decode(static_cast<const Storage*>(
        p.a)[REVERSE ? j * p.a_row + i * p.a_col : i * p.a_row + j * p.a_col]);
  }
  SR_FN T emitted(T own, int step, int j) const {
    if (!p.e) return own;
    const auto* e = static_cast<const Storage*>(p.e) + chain * p.e_batch + step * p.e_step;
    return REVERSE ? A::mul(A::decode(e[j]), own) : A::mul(own, A::decode(e[j]));
  }
  SR_FN T first(int j) const {
    const auto* x = static_cast<const Storage*>(p.x) + chain * p.x_batch + within * p.x_row;
    if (p.x) return A::decode(x[j]);
    const T own = matrix(within, j);
    if (!p.e) return own;
    const auto* e = static_cast<const Storage*>(p.e) + chain * p.e_batch;
    return A::mul(own, A::decode(REVERSE ? e[(at + 1) * p.e_step + within] : e[at * p.e_step + j]));
  }
  // What is carried after this step, where it is wanted.
  SR_FN void store(int j, T value) const {
    const bool every = p.mode & WIDE_EVERY;
    if (p.mode & WIDE_RELATIVE || p.step < 0 || !p.y || !(every || last())) return;
    const int skipped = length - count, to = every ? (REVERSE ? at - skipped : at + skipped) : 0;
    auto* y = static_cast<Storage*>(p.y) + chain * p.y_batch + to * p.y_step + within * p.y_row;
    y[j] = A::encode(value);
  }
};

// Kernel: what comes behind the product of a step over log_plus. WANTED: on the way back from the
// ends, probabilities of states (1), and of pairs of states (2).
template <class A, bool REVERSE, int WANTED>
struct WideStep : WideRow<A, REVERSE> {
  using Row = WideRow<A, REVERSE>;
  using T = typename Row::T;
  using Storage = typename Row::Storage;
  using Row::at, Row::chain, Row::emitted, Row::first, Row::matrix, Row::p, Row::row, Row::store;
  static constexpr int THREADS = Row::THREADS;
  // The sums from which on they are right. Of pairs a probability is a product of two factors, both
  // far from the ends of the range.
  static constexpr T LEAST = WANTED < 2 ? Limits<T>::LEAST : T(sizeof(T) == 4 ? 0x1p-75 : 0x1p-800);

  const i64 turn;
  const double offset;  // of what was carried
  const T* before;      // [n]: its logarithms
  T* now;               // [n]

  SR_FN explicit WideStep(const WideParams& p)
      : Row(p), turn(i64(gridDim.x) * p.n), offset(p.sums ? p.offsets[row] : 0),
        before(static_cast<const T*>(p.logs) + ((p.step + 1) & 1) * turn + row * p.n),
        now(static_cast<T*>(p.logs) + (p.step & 1) * turn + row * p.n) {}

  SR_FN static void run(const WideParams& p) {
    const WideStep walk(p);
    if (!walk.active()) return;
    if (walk.last()) walk.template go<true>();
    else walk.template go<false>();
  }
  SR_FN i64 place(int j) const { return (chain * p.steps + at) * p.n + j; }

  template <bool LAST>
  SR_FN void go() const {
    T high = -infinity<T>(), low = infinity<T>();
    for (int j = int(threadIdx.x); j < p.n; j += THREADS) {
      T own = p.sums ? joined(j) : first(j);
      if (!REVERSE && p.sums) own = emitted(own, at, j);
      if constexpr (WANTED > 0) probability(j, own);
      else store(j, T(offset + double(own)));
      if (REVERSE && !LAST) own = emitted(own, at, j);
      now[j] = own;
      high = max(high, own);  // keeps a NaN
      low = own > -infinity<T>() && own < low ? own : low;
    }
    if (!LAST || p.mode & WIDE_RELATIVE) share(joint<true>(high), joint<false>(low));
    if (LAST && !WANTED && p.total) add_up();
  }
  // The logarithm of the sum of an entry, less `offset`.
  SR_FN T joined(int j) const {
    const T* ends = static_cast<const T*>(p.ends);
    const T sum = static_cast<const T*>(p.sums)[row * p.n + j];
    const T low = static_cast<const T*>(p.lows)[row];
    T own;
    const bool known = settled(own, sum, T(0), low, ends[j], ends[p.n + j], LEAST);
    if (!known) own = term_by_term(j);
    if constexpr (WANTED > 1) {
      const T factor = sr::exp(T(so_far(j)) + ends[j]);
      static_cast<T*>(p.left)[place(j)] =
          known && own > -infinity<T>() ? factor / Limits<T>::UP : T(0);
      T* pairs = static_cast<T*>(p.pairs) + chain * p.pairs_batch + i64(j) * p.n;
      for (int i = 0; i < p.n && !known; ++i)
        pairs[i] += sr::exp(T(so_far(j)) + (before[i] + matrix(i, j)));
    }
    return own;
  }
  SR_FN T term_by_term(int j) const {
    T high = before[0] + matrix(0, j);
    for (int i = 1; i < p.n; ++i) high = max(high, before[i] + matrix(i, j));
    if (!(high > -infinity<T>() && high < infinity<T>())) return high;
    T sum = 0;
    for (int i = 0; i < p.n; ++i) sum += sr::exp(before[i] + matrix(i, j) - high);
    return high + sr::log(sum);
  }
  // What leads to a state, of the total, and what has been taken off the way back.
  SR_FN double so_far(int j) const {
    const double rest = p.whole[chain] - p.levels[chain * p.steps + at];
    const auto* y = static_cast<const T*>(p.y) + chain * p.y_batch + at * p.y_step;
    return double(y[j]) - (rest - offset);
  }
  SR_FN void probability(int j, T own) const {
    const double nan = p.whole[chain] - p.whole[chain];  // or 0
    static_cast<T*>(p.states)[place(j)] =
        nan == 0 ? sr::exp(T(so_far(j) + double(own))) : T(nan);
  }
  // Store what is carried for the next step, less the largest entry.
  SR_FN void share(T high, T low) const {
    const T shift = high > -infinity<T>() && high < infinity<T>() ? high : T(0);
    if (threadIdx.x == 0) {
      p.offsets[row] = offset + double(shift);
      static_cast<T*>(p.lows)[row] = low - shift;
      if (p.mode & WIDE_RELATIVE) p.levels[chain * p.steps + at] = offset + double(shift);
    }
    T* powers = static_cast<T*>(p.powers) + row * p.n;
    T* y = static_cast<T*>(p.y) + chain * p.y_batch + at * p.y_step;
    for (int j = int(threadIdx.x); j < p.n; j += THREADS) {
      const T own = now[j] - shift;  // stored by this thread
      now[j] = own;
      powers[j] = lifted(own);
      if (p.mode & WIDE_RELATIVE) y[j] = own;
      if constexpr (WANTED > 1) static_cast<T*>(p.right)[place(j)] = sr::exp(own);
    }
  }
  // The logarithm of the sum of what is carried last, joined with `end`.
  SR_FN void add_up() const {
    const auto* end = static_cast<const Storage*>(p.end) + chain * p.end_batch;
    const double taken = p.mode & WIDE_RELATIVE ? p.levels[chain * p.steps + at] : offset;
    T high = -infinity<T>(), sum = 0;
    for (int j = int(threadIdx.x); j < p.n; j += THREADS)
      high = max(high, now[j] + A::decode(end[j]));
    high = joint<true>(high);
    const bool finite = high > -infinity<T>() && high < infinity<T>();
    for (int j = int(threadIdx.x); j < p.n && finite; j += THREADS)
      sum += sr::exp(now[j] + A::decode(end[j]) - high);
    sum = joint<true, true>(sum);
    if (threadIdx.x) return;
    const double whole = finite ? taken + double(high) + double(sr::log(sum)) : double(high);
    p.whole[chain] = whole;
    static_cast<T*>(p.total)[chain] = T(whole);
  }
  // The largest (or smallest) of the threads' values, or their sum.
  template <bool LARGEST, bool SUM = false>
  SR_FN static T joint(T own) {
    T* all = shared_memory<T>();  // [THREADS]
    const int thread = int(threadIdx.x);
    __syncthreads();  // between reading the last result and storing other values
    all[thread] = own;
    for (int half = THREADS / 2; half > 0; half /= 2) {
      __syncthreads();  // between storing 2 * half values and reading them
      if (thread >= half) continue;
      const T x = all[thread], y = all[thread + half];
      all[thread] = SUM ? x + y : LARGEST ? max(x, y) : y < x ? y : x;
    }
    __syncthreads();  // between storing the result and reading it
    return all[0];
  }
};

// Kernel: what comes behind the product of a step over any other semiring, which is what is carried.
// PATH: with the state before each, and at the end the best path.
template <class A, bool REVERSE, bool PATH>
struct WideJoin : WideRow<A, REVERSE> {
  using Row = WideRow<A, REVERSE>;
  using T = typename Row::T;
  using Storage = typename Row::Storage;
  using Row::at, Row::chain, Row::emitted, Row::first, Row::length, Row::p, Row::row;

  SR_FN static void run(const WideParams& p) {
    const WideJoin walk(p);
    if (walk.active()) walk.go();
  }
  SR_FN explicit WideJoin(const WideParams& p) : Row(p) {}

  SR_FN void go() const {
    const auto* sums = static_cast<const Storage*>(p.sums) + row * p.n;
    auto* powers = static_cast<Storage*>(p.powers) + row * p.n;
    u16* pointers = p.pointers + (chain * p.steps + at) * p.n;
    for (int j = int(threadIdx.x); j < p.n; j += Row::THREADS) {
      T own = p.sums ? A::decode(sums[j]) : first(j);
      if (!REVERSE && p.sums) own = emitted(own, at, j);
      Row::store(j, own);
      if (REVERSE && !Row::last()) own = emitted(own, at, j);
      powers[j] = A::encode(own);
      if constexpr (PATH) {
        if (p.sums) pointers[j] = u16(max(p.from[row * p.n + j], 0));  // below 0: no way is better
      }
    }
    if constexpr (PATH) {
      if (Row::last()) finish(powers);
    }
  }
  // The best of the last states, each thread's first, and the way back from it.
  SR_FN void finish(const Storage* scores) const {
    const auto* end = static_cast<const Storage*>(p.end) + chain * p.end_batch;
    T* values = shared_memory<T>();  // [THREADS], then their states
    i32* states = reinterpret_cast<i32*>(values + Row::THREADS);
    const int thread = int(threadIdx.x);
    const auto joined = [&](int j) { return A::mul(A::decode(scores[j]), A::decode(end[j])); };
    T best = A::start();
    int state = p.n;
    for (int j = thread; j < p.n; j += Row::THREADS) {
      const T value = joined(j);  // of a score that this thread has stored
      const T join = state < p.n ? A::add(best, value) : value;
      if (state == p.n || !same(join, best)) state = j;
      best = join;
    }
    values[thread] = best;
    states[thread] = state;
    __syncthreads();  // between storing each thread's best state and reading all
    if (thread) return;
    for (int i = 1; i < Row::THREADS; ++i) {
      if (states[i] == p.n) continue;
      const T join = A::add(best, values[i]);
      const bool equal = same(values[i], best);
      if (equal ? states[i] < state : !same(join, best)) state = states[i];
      best = join;
    }
    static_cast<Storage*>(p.total)[chain] = A::encode(best);
    i32* path = p.path + chain * p.steps;
    const u16* from = p.pointers + chain * p.steps * p.n;
    for (int step = length - 1; step > 0; --step) {
      path[step] = state;
      state = from[i64(step) * p.n + state];
    }
    path[0] = state;
  }
  SR_FN static bool same(T a, T b) { return a == b || (a != a && b != b); }
};

// Kernel: probabilities of pairs from the products of `left` and `right`, `sums`, and the
// exponentials of the matrix, `a`. A block has a row of a chain's matrix.
template <class T>
struct WidePairs {
  SR_FN static void run(const WideParams& p) {
    const i64 chain = blockIdx.x / u32(p.n), j = blockIdx.x % u32(p.n);
    if (p.lengths[chain] < 2) return;
    const T nan = T(p.whole[chain] - p.whole[chain]);  // where no sequence is possible, or 0
    const T* sums = static_cast<const T*>(p.sums) + i64(blockIdx.x) * p.n;
    const T* powers = static_cast<const T*>(p.a) + j * p.a_row;
    T* pairs = static_cast<T*>(p.pairs) + chain * p.pairs_batch + j * p.n;
    for (int i = int(threadIdx.x); i < p.n; i += int(blockDim.x))
      pairs[i] += nan == 0 ? sums[i] * powers[i * p.a_col] : nan;
  }
};

}  // namespace sr

// Kernels: chains of products, one after the other: x A1 diag(e1) A2 diag(e2) ...
//
// A block walks one chain (or one row of a chain of matrices): its thread j has entry j of what is
// carried. At each step the entries go to shared memory, and a thread joins them with its column of
// the matrix, which stays in its registers where all steps share one. Reversed, with its row: what
// is carried is a column then.
//
// Over log_plus exponentials are carried, scaled by powers of two (ScaledFold): a step takes no
// logarithm. Chains whose numbers are too far apart for that are computed once more, where the
// logarithms are carried, of what exceeds a running offset (LogFold).
#pragma once
#include "base.cuh"

namespace sr {

// The parameters of launches; the same fields in the same order in semiring_mm/gpu/chain.py.
// Strides in elements. Chain b has lengths[b] steps, or `length` where there is no such array.
struct ChainParams {
  const void* a;
  const void* e;
  const void* x;
  const void* end;
  void* y;          // what is carried; probabilities
  void* total;      // scores, or logarithms of sums
  i32* path;        // [batch][path_batch]
  u16* pointers;    // [batch][steps][states]: the state before each
  i64* offsets;     // [batch][steps]: powers of two that were taken off
  void* pairs;
  const i64* lengths;
  u32* errors;      // set to 1 where a result does not fit its dtype, or numbers are out of range
  const i64* tags;  // [batch][steps], tags_batch apart: states whose score is taken off
  i64 a_batch, a_step, a_row, a_col, e_batch, e_step, x_batch, x_row, end_batch;
  i64 y_batch, y_step, y_row, pairs_batch, pairs_step, pairs_row, draw, tags_batch;
  int states, rows, steps, length, mode;
};
// Of mode. CHAIN_WHOLE, for posterior probabilities and best paths: a model as users give it. `x` is
// what comes before the emissions of the first step, it and `end` may be missing, and the lengths
// may be anything; all results are written, also behind the ends, where sums are 0 and states -1.
// Probabilities are 0 where no sequence is possible, as the gradients of a total of -inf. Where
// lengths or tags are out of range, the total is NaN.
enum { CHAIN_EVERY = 1, CHAIN_EXCLUSIVE = 2, CHAIN_WHOLE = 4 };

// What the threads of a block share: their number is that of the states, in whole warps.
template <int N>
SR_FN void chain_barrier() {
  if constexpr (N > 0 && N <= 32) __syncwarp();
  else __syncthreads();
}
template <int N>
SR_FN int chain_states(const ChainParams& p) { return N > 0 ? N : p.states; }
template <int N>
SR_FN int chain_line(const ChainParams& p) { return (chain_states<N>(p) + 3) / 4 * 4; }
SR_FN int chain_length(const ChainParams& p, i64 chain) {
  if (!p.lengths) return p.length;
  const i64 length = p.lengths[chain];
  if (!(p.mode & CHAIN_WHOLE) || (length >= 0 && length <= p.steps)) return int(length);
  *p.errors = 1;
  return -1;
}
// The total of a chain without steps.
template <class T>
SR_FN T chain_nothing(int length) { return length ? infinity<T>() - infinity<T>() : T(0); }
// What the first step begins with: its row of emissions is `e`.
template <class A>
SR_FN typename A::Compute chain_start(const ChainParams& p, i64 chain, int j,
                                      const typename A::Storage* e) {
  const auto* x = static_cast<const typename A::Storage*>(p.x) + chain * p.x_batch;
  if (!(p.mode & CHAIN_WHOLE)) return A::decode(x[j]);
  return p.x ? A::mul(A::decode(x[j]), A::decode(e[j])) : A::decode(e[j]);
}
// What the last step ends with.
template <class A>
SR_FN typename A::Compute chain_end(const ChainParams& p, i64 chain, int j) {
  return p.end ? A::decode(static_cast<const typename A::Storage*>(p.end)[chain * p.end_batch + j])
               : typename A::Compute(0);
}

// Values that come from memory at each step, copied to shared memory AHEAD steps before they are
// used: on the way to registers, each step would wait for the load of the one before. A thread
// reads what it has copied itself.
constexpr int AHEAD = 7, SLOTS = AHEAD + 1;
template <class A>
struct Ahead {
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  Storage* ring;        // [SLOTS][threads], of this thread
  const Storage* from;  // the next to be asked for
  i64 step;
  int left;
  u32 put = 0, got = 0;

  // The values first[0], first[stride], ... first[(count - 1) * stride].
  SR_FN Ahead(void* room, const Storage* first, i64 stride, int count)
      : ring(static_cast<Storage*>(room) + threadIdx.x), from(first), step(stride), left(count) {}
  SR_FN static int bytes() { return SLOTS * int(blockDim.x) * int(sizeof(Storage)); }
  SR_FN void ask() {
    if (left <= 0) return;
    left -= 1;
    Storage* to = ring + put * blockDim.x;
    if constexpr (sizeof(Storage) >= 4) copy_async<int(sizeof(Storage))>(to, from);
    else *to = *from;
    from += step;
    put = (put + 1) % SLOTS;
  }
  // The oldest one that has not been taken, after arrived().
  SR_FN Compute take() {
    const Compute x = A::decode(ring[got * blockDim.x]);
    got = (got + 1) % SLOTS;
    return x;
  }
};
// Of all values of a step together: what is asked for in the beginning and at each step, and what
// is waited for at each step before values are taken.
template <class... Rings>
SR_FN void ask_first(Rings&... rings) {
  for (int i = 0; i < AHEAD; ++i) {
    (rings.ask(), ...);
    copy_commit();
  }
}
template <class... Rings>
SR_FN void ask_next(Rings&... rings) {
  (rings.ask(), ...);
  copy_commit();
}
SR_FN void arrived() { copy_wait<AHEAD - 1>(); }

// Where the matrix of a step lies, for the column (REVERSE: row) of a thread.
template <class A, bool REVERSE>
struct ChainMatrix {
  using Storage = typename A::Storage;
  const Storage* base;
  i64 step, along;  // from one matrix to the next, and from one entry of the column to the next

  SR_FN ChainMatrix(const ChainParams& p, i64 chain, int j)
      : base(static_cast<const Storage*>(p.a) + chain * p.a_batch +
             j * (REVERSE ? p.a_row : p.a_col)),
        step(p.a_step), along(REVERSE ? p.a_col : p.a_row) {}
  SR_FN typename A::Compute operator()(int at, int i) const {
    return A::decode(base[at * step + i * along]);
  }
};

// One step: the join of what is carried with a thread's column. N: the number of states, or 0 if it
// is not known. SHARED: all steps have one matrix.
template <class A, int N, bool SHARED, bool REVERSE>
struct Fold {
  using Compute = typename A::Compute;
  static constexpr bool HELD = N > 0 && N <= 128;
  static constexpr int HOLDS = HELD ? N : 1;
  ChainMatrix<A, REVERSE> matrix;
  Compute column[HOLDS];  // [N]
  int states, at;         // the matrix that is held

  // `any`: whether there is a matrix at all.
  SR_FN Fold(const ChainParams& p, i64 chain, int j, int first, bool any)
      : matrix(p, chain, j), states(chain_states<N>(p)), at(first) {
    if constexpr (HELD) {
      if (any) hold();
    }
  }
  SR_FN void hold() {
#pragma unroll
    for (int i = 0; i < HOLDS; ++i) column[i] = matrix(at, i);
  }
  // `carried` lies in shared memory; `following` is the step after this one.
  template <class Join>
  SR_FN void each(const Compute* carried, int following, Join join) {
    if constexpr (HELD) {
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        const auto four = *reinterpret_cast<const Pack<Compute, 4>*>(carried + i);  // [4]
#pragma unroll
        for (int k = 0; k < 4; ++k)
          if (i + k < N) join(i + k, four.x[k], column[i + k]);
      }
      if constexpr (!SHARED) {
        at = following;
        hold();
      }
    } else {
#pragma unroll 4
      for (int i = 0; i < states; ++i) join(i, carried[i], matrix(at, i));
      at = following;
    }
  }
  SR_FN static Compute times(Compute carried, Compute own) {
    return REVERSE ? A::mul(own, carried) : A::mul(carried, own);
  }
  SR_FN Compute operator()(const Compute* carried, int following) {
    Compute sum[4] = {A::start(), A::start(), A::start(), A::start()};  // so that few wait
    each(carried, following, [&](int i, Compute x, Compute own) {
      sum[i % 4] = REVERSE ? A::fold(sum[i % 4], own, x) : A::fold(sum[i % 4], x, own);
    });
    return A::add(A::add(sum[0], sum[1]), A::add(sum[2], sum[3]));
  }
  // Also which of the carried entries won: the first of equals.
  SR_FN Compute operator()(const Compute* carried, int following, int& from) {
    Compute best = A::start();
    from = 0;
    each(carried, following, [&](int i, Compute x, Compute own) {
      const Compute term = times(x, own), join = A::add(i ? best : term, term);
      if (i && !same(join, best)) from = i;
      best = join;
    });
    return best;
  }
  // By their bits: a NaN that stays is no change.
  SR_FN static bool same(float x, float y) { return bits_as<u32>(x) == bits_as<u32>(y); }
  SR_FN static bool same(double x, double y) { return bits_as<u64>(x) == bits_as<u64>(y); }
};

// The same over log_plus. `offset` plus what is returned are the logarithms.
template <class A, int N, bool SHARED, bool REVERSE>
struct LogFold {
  using T = typename A::Compute;
  static constexpr bool HELD = SHARED && N > 0 && N <= 128;
  static constexpr int HOLDS = HELD ? N : 1;
  static constexpr bool NARROW = sizeof(T) == 4;
  // The largest carried exponential lies within [1/SPAN, SPAN], or it is made 1. A sum from LEAST
  // on is right: what was lost of its terms is less than its rounding.
  static constexpr T SPAN = T(NARROW ? 0x1p20 : 0x1p60), LEAST = T(NARROW ? 0x1p-75 : 0x1p-800);
  ChainMatrix<A, REVERSE> matrix;
  T column[HOLDS];  // [N] exponentials, the largest of them 1
  T top;            // what was taken off their logarithms
  double offset = 0, seen_offset = 0;
  T* room;          // [2][2][line] of shared memory: exponentials and logarithms, by turns
  const T* seen;    // those of the last step
  bool exact = true;  // whether that was computed term by term
  int states, line, j, turn = 0;

  SR_FN LogFold(const ChainParams& p, i64 chain, int j, T* room, bool any)
      : matrix(p, chain, j < chain_states<N>(p) ? j : 0), room(room),
        states(chain_states<N>(p)), line(chain_line<N>(p)), j(j) {
    if constexpr (HELD) {
      top = -infinity<T>();
#pragma unroll
      for (int i = 0; i < N; ++i) {
        column[i] = any ? matrix(0, i) : T(0);
        top = column[i] > top ? column[i] : top;
      }
      if (!(top > -infinity<T>() && top < infinity<T>())) top = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) column[i] = sr::exp(column[i] - top);
    }
  }
  SR_FN void share(T own) {
    T* to = room + turn * 2 * line;
    turn ^= 1;
    if (j < states) {
      to[j] = sr::exp(own);
      to[line + j] = own;
    }
    chain_barrier<N>();  // between storing the entries and reading them; by turns, since the next
    seen = to;           // step's are stored while some are read
  }
  SR_FN T largest(const T* x) const {
    T most = x[0];
#pragma unroll 4
    for (int i = 1; i < states; ++i) most = max(most, x[i]);
    return most;
  }
  SR_FN T sum(T& most) const {
    T sums[4] = {}, tops[4] = {};
#pragma unroll
    for (int i = 0; i < HOLDS; i += 4) {
      const auto four = *reinterpret_cast<const Pack<T, 4>*>(seen + i);  // [4]
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (i + k < HOLDS) {
          sums[k] = fma(four.x[k], column[i + k], sums[k]);
          tops[k] = four.x[k] > tops[k] ? four.x[k] : tops[k];
        }
    }
    const T a = tops[0] > tops[1] ? tops[0] : tops[1], b = tops[2] > tops[3] ? tops[2] : tops[3];
    most = a > b ? a : b;
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  SR_FN T term_by_term(int at) const {
    const T* logs = seen + line;
    T high = logs[0] + matrix(at, 0);
#pragma unroll 4
    for (int i = 1; i < states; ++i) high = max(high, logs[i] + matrix(at, i));
    if (!(high > -infinity<T>() && high < infinity<T>())) return high;
    T sum = 0;
#pragma unroll 4
    for (int i = 0; i < states; ++i) sum += sr::exp(logs[i] + matrix(at, i) - high);
    return high + sr::log(sum);
  }
  // exp(x) over the sum of those of all threads.
  SR_FN T part(double x) {
    double* all = reinterpret_cast<double*>(room + turn * 2 * line);  // no thread reads it any more
    if (j < states) all[j] = x;
    chain_barrier<N>();  // between storing and reading
    double high = all[0];
#pragma unroll 4
    for (int i = 1; i < states; ++i) high = max(high, all[i]);
    T sum = 0;
#pragma unroll 4
    for (int i = 0; i < states; ++i) sum += sr::exp(T(all[i] - high));
    chain_barrier<N>();  // between reading and storing entries there
    return sr::exp(T(x - high)) / sum;
  }
  // log Σ exp(carried + A) of the step `at`, less what `offset` grows by.
  SR_FN T operator()(T own, int at) {
    share(own);
    T most = 0, total = 0, gone = 0;
    bool fresh = HELD;
    if constexpr (HELD) {
      total = sum(most);
      if (most >= 1 / SPAN && most <= SPAN) {
        gone = sr::log(most);
        fresh = false;
      }
    }
    if (!HELD || fresh) {  // all threads of the block agree
      const T high = largest(seen + line);
      if (high > -infinity<T>() && high < infinity<T>()) {
        offset += double(high);
        if constexpr (HELD) {
          share(own - high);
          total = sum(most);
        } else {
          gone = high;
          offset -= double(high);
        }
      }
    }
    seen_offset = offset;
    exact = !HELD || !(total >= LEAST);
    T found;
    if (exact) found = term_by_term(at);
    else found = sr::log(total) + top;
    offset += double(gone);
    return found - gone;
  }
};

// Numbers as 2^(rest + k), so that the exponents of products are sums of whole numbers.
template <class T>
struct Scaled {
  static constexpr bool NARROW = sizeof(T) == 4;
  static constexpr int BIAS = NARROW ? 127 : 1023, NONE = -(1 << 24);  // NONE: the exponent of 0
  static constexpr double LN2 = 0x1.62e42fefa39efp-1, LN2_REST = 0x1.abc9e3b39803fp-56;
  T rest;
  int k;

  // exp(x); 0 where x is below any number of use, and infinite where it is above, or NaN.
  SR_FN static Scaled exp(T x) {
    constexpr T SHIFT = NARROW ? T(0x1.8p23) : T(0x1.8p52);  // sums with it are rounded to integers
    constexpr T LOG2E = T(1.4426950408889634074), HIGH = T(LN2);
    constexpr T LOW = NARROW ? T(LN2 - double(T(LN2))) : T(LN2_REST);
    const T shifted = fma(x, LOG2E, SHIFT), whole = shifted - SHIFT;
    const T rest = fma(-whole, LOW, fma(-whole, HIGH, x));  // of which no digit was lost
    Scaled found{rest * LOG2E, integer(shifted)};
    if (!(abs(x) <= T(1 << 19))) {
      found.rest = x < 0 ? -infinity<T>() : infinity<T>();
      found.k = x < 0 ? NONE : 0;
    }
    return found;
  }
  // exp(x) 2^-less, with the error that x has if it is rounded, where errors do not add up. Doubles
  // by a call: the code would be long.
  SR_FN static T rough(T x, int less) {
    if constexpr (NARROW) return exp2_approx(fma(x, T(1 / LN2), T(-less)));
    else return sr::exp(fma(T(-less), LN2_REST, fma(T(-less), LN2, x)));
  }
  // times 2^-less, which makes it no infinity
  SR_FN T value(int less) const { return exp2_approx(rest) * power(k - less); }
  SR_FN static int integer(float shifted) { return bits_as<i32>(shifted) - 0x4b400000; }
  SR_FN static int integer(double shifted) { return int(u32(bits_as<u64>(shifted))); }
  // 2^k, k <= BIAS; 0 where it would be denormal.
  SR_FN static T power(int k) {
    const int biased = max(k + BIAS, 0);
    if constexpr (NARROW) return bits_as<float>(u32(biased) << 23);
    else return bits_as<double>(u64(biased) << 52);
  }
  // x 2^k for any k with which it is no infinity.
  SR_FN static T times_power(T x, int k) {
    const int near = max(-2 * BIAS, min(k, 2 * BIAS)), half = near >> 1;
    return x * power(half) * power(near - half);
  }
  // A word of which the order is that of numbers from 0 on, and the exponent that it tells.
  SR_FN static i32 word(float x) { return bits_as<i32>(x); }
  SR_FN static i32 word(double x) { return i32(bits_as<u64>(x) >> 32); }
  SR_FN static int exponent(i32 word) { return (word >> (NARROW ? 23 : 20)) - BIAS; }
  // log(x 2^k)
  SR_FN static double log(T x, i64 k) {
    const int own = exponent(word(x));
    if (!(x > 0 && x < infinity<T>())) return double(sr::log(x));
    return double(sr::log(x * power(-own))) + double(k + own) * LN2;
  }
};

// The same without logarithms: exponentials are carried, times powers of two that keep the largest
// about 2^LEVEL. They follow it two steps behind, so that no step waits for them. What is carried
// is x 2^exponent.
//
// A sum of terms begins with FLOOR, which is more than all that may have been lost of them below
// the range of T: results are too large if anything. Sums from LEAST on are right. Sums that begin
// with 0 are right where all is `kept`.
template <class A, int N, bool SHARED, bool REVERSE>
struct ScaledFold {
  using T = typename A::Compute;
  using Number = Scaled<T>;
  static constexpr bool NARROW = sizeof(T) == 4, WARPS = N > 32;
  static constexpr int LEVEL = NARROW ? 30 : 200, LINE = (N + 3) / 4 * 4;
  static constexpr T FLOOR = T(NARROW ? 0x1p-62 : 0x1p-760), LEAST = T(NARROW ? 0x1p-32 : 0x1p-700);
  static constexpr T KEPT = T(NARROW ? 0x1p-80 : 0x1p-600), SMALL = T(NARROW ? 0x1p-44 : 0x1p-400);
  // Whether the matrices, also that of the next step, stay in registers.
  static constexpr bool HELD = N > 0 && N * int(sizeof(T)) <= (SHARED ? 512 : 256);
  ChainMatrix<A, REVERSE> matrix;
  T column[N > 0 ? N : 1];  // [N] exponentials, but for 2^top
  int top;
  bool there, lost = false;
  T* room;      // [2][line] of shared memory, by turns
  i32* tops;    // [2][2][4]: of each warp, the largest exponent of the next factors and the
                // largest entry before the last
  i64 exponent = 0;
  T factor;     // of the last sum
  Number next;  // the factor to come
  int before = 0, shift = 0, turn = 0, j;

  // `at`: the first matrix, if there is `any`.
  SR_FN ScaledFold(const ChainParams& p, i64 chain, int j, T* room, int at, bool any)
      : matrix(p, chain, j < N ? j : 0), there(j < N), room(room),
        tops(reinterpret_cast<i32*>(room + 2 * LINE)), j(j) {
#pragma unroll
    for (int i = 0; i < N; ++i) column[i] = any ? matrix(at, i) : -infinity<T>();
    raise();
  }
  // Exponentials of the column.
  SR_FN void raise() {
    T most[4], least[4] = {1, 1, 1, 1};  // so that few wait
#pragma unroll
    for (int i = 0; i < 4; ++i) most[i] = -infinity<T>();
#pragma unroll
    for (int i = 0; i < N; ++i) most[i % 4] = column[i] > most[i % 4] ? column[i] : most[i % 4];
#pragma unroll
    for (int i = 1; i < 4; ++i) most[0] = most[i] > most[0] ? most[i] : most[0];
    const Number high = Number::exp(most[0]);
    top = high.k > Number::NONE ? high.k : 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const T found = SHARED && NARROW ? Number::exp(column[i]).value(top)
                                       : Number::rough(column[i], top);
      const T some = column[i] > -infinity<T>() ? found : T(1);
      least[i % 4] = some < least[i % 4] ? some : least[i % 4];
      column[i] = found;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) lost = lost || least[i] < SMALL;
  }
  // Of all threads.
  SR_FN int largest(int x) {
    x = max_of_warp(x);
    if constexpr (WARPS) {
      i32* to = tops + turn * 8;
      turn ^= 1;
      if (j % 32 == 0) to[j / 32] = x;
      chain_barrier<N>();  // between storing and reading; by turns
#pragma unroll
      for (int i = 0; i < (N + 31) / 32; ++i) x = max(x, to[i]);
    }
    return x;
  }
  // What is carried first: exp(x).
  SR_FN T first(T x) {
    const Number own = Number::exp(there ? x : -infinity<T>());
    const int high = largest(own.k);
    exponent = i64(high) - LEVEL;
    before = Number::word(Number::power(LEVEL));
    return own.value(high - LEVEL);
  }
  // exp(x) is the factor of the next sum.
  SR_FN void coming(T x) {
    next = Number::exp(there ? x : -infinity<T>());
  }
  // The sum over all threads.
  SR_FN T all(T x) {
    T* to = room + turn * LINE;
    turn ^= 1;
    if (there) to[j] = x;
    chain_barrier<N>();  // between storing and reading; by turns
    T sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += to[i];
    return sum;
  }
  // Whether `own`, a sum times exp(x), is large enough or rightly 0, and no entry of the matrices
  // was so small that its product with such a number may be 0.
  SR_FN bool kept(T sum, T own, T x) const {
    const bool none = !there || sum == 0 || x == -infinity<T>();
    return !lost && (none || (own >= KEPT && own <= 1 / KEPT));
  }
  // The sum over `own` of all threads times the column, for which `factor` stands ready then; of
  // the next sum it will be exp(x), and its matrix the one that is `following`.
  template <class Each>
  SR_FN T operator()(T own, T floor, T x, int following, Each each) {
    T* to = room + turn * LINE;
    i32* high = tops + turn * 8;
    turn ^= 1;
    if (there) to[j] = own;
    int highest = 0;
    if constexpr (WARPS) {
      highest = max_of_warp(next.k + top);
      if (j % 32 == 0) {
        high[j / 32] = highest;
        high[4 + j / 32] = before;
      }
    }
    chain_barrier<N>();  // between storing the entries and reading them; by turns
    if constexpr (WARPS) {
#pragma unroll
      for (int i = 0; i < (N + 31) / 32; ++i) {
        highest = max(highest, high[i]);
        before = max(before, high[4 + i]);
      }
    }
    // here, since the loads of entries take their time
    if constexpr (!WARPS) highest = max_of_warp(next.k + top);
    shift = max(Number::exponent(before) - LEVEL - shift, -3 * LEVEL);
    factor = next.value(highest - top + shift);
    exponent += highest + shift;
    before = max_of_warp(Number::word(own));
    coming(x);
    T ahead[SHARED ? 1 : N];
    if constexpr (!SHARED) {
#pragma unroll
      for (int i = 0; i < N; ++i) ahead[i] = matrix(following, i);
    }
    T sums[4] = {floor, 0, 0, 0};  // so that few wait
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const auto four = *reinterpret_cast<const Pack<T, 4>*>(to + i);  // [4]
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (i + k < N) {
          sums[k] = fma(four.x[k], column[i + k], sums[k]);
          each(i + k, four.x[k]);
        }
    }
    if constexpr (!SHARED) {
#pragma unroll
      for (int i = 0; i < N; ++i) column[i] = ahead[i];
      raise();
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  SR_FN T operator()(T own, T floor, T x, int following) {
    return (*this)(own, floor, x, following, [](int, T) {});
  }
};

// Kernel: rows through chains. LOG: ⊕ is logaddexp, ⊗ is a + b, of floats.
template <class A, int N, bool SHARED, bool REVERSE, bool LOG, bool FACTORED, bool GIVEN>
struct Carry {
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;

  // What is carried on: integers as they would be stored, so that they fit at each step and an
  // infinity does not drift.
  SR_FN static Compute settled(const ChainParams& p, Compute x) {
    if constexpr (A::CHECK) {
      if (!A::fits(x)) *p.errors = 1;
    }
    if constexpr (A::INTEGER) return A::decode(A::encode(x));
    else return x;
  }
  SR_FN static void run(const ChainParams& p) {
    const int states = chain_states<N>(p), line = chain_line<N>(p);
    const i64 chain = blockIdx.x / u32(p.rows), row = blockIdx.x % u32(p.rows);
    const bool there = int(threadIdx.x) < states;
    const int j = there ? int(threadIdx.x) : 0;
    const bool every = p.mode & CHAIN_EVERY;
    const int skipped = p.mode & CHAIN_EXCLUSIVE ? 1 : 0;
    const int length = chain_length(p, chain), count = length - skipped;
    if (count <= 0) return;
    const int begin = REVERSE ? length - 1 : 0, way = REVERSE ? -1 : 1;
    Compute* room = shared_memory<Compute>();  // [2][line], LOG: [2][2][line]
    const Storage* e = static_cast<const Storage*>(p.e) + chain * p.e_batch;
    const i64 e_step = FACTORED ? p.e_step : 0;
    Storage* y = static_cast<Storage*>(p.y) + chain * p.y_batch + row * p.y_row + j;
    Compute own;
    int done = 0;
    if constexpr (GIVEN) {
      own = A::decode(static_cast<const Storage*>(p.x)[chain * p.x_batch + row * p.x_row + j]);
    } else {  // the first matrix is what is carried
      const Storage* a = static_cast<const Storage*>(p.a) + chain * p.a_batch + begin * p.a_step;
      own = A::decode(REVERSE ? a[j * p.a_row + row * p.a_col] : a[row * p.a_row + j * p.a_col]);
      if constexpr (FACTORED)
        own = settled(p, A::mul(own, A::decode(e[begin * e_step + (REVERSE ? row : j)])));
      done = 1;
    }
    const auto store = [&](int step, typename Choose<LOG, double, Compute>::Type found) {
      if (!there) return;
      const i64 place = every ? begin + way * (step + skipped) : 0;
      y[place * p.y_step] = A::encode(Compute(found));  // logarithms are in double precision
    };
    if (done && (every || count == 1)) store(0, own);
    const int from = begin + way * done;
    const auto emissions = [&] {
      Ahead<A> ahead(room + (LOG ? 4 : 2) * line, FACTORED ? e + from * e_step + j : nullptr,
                     way * e_step, FACTORED ? count - done : 0);
      if constexpr (FACTORED) ask_first(ahead);
      return ahead;
    };
    const auto next = [&](Ahead<A>& ahead) {
      if constexpr (!FACTORED) return Compute(0);
      arrived();
      const Compute x = ahead.take();
      ask_next(ahead);
      return x;
    };
    if constexpr (LOG) {
      if (done >= count) return;
      if constexpr (ScaledFold<A, N, SHARED, REVERSE>::HELD) {  // by exponentials, if that is right
        Ahead<A> ahead = emissions();
        ScaledFold<A, N, SHARED, REVERSE> fold(p, chain, int(threadIdx.x), room, from, true);
        Compute x = REVERSE ? own + next(ahead) : own, carried = fold.first(x);
        bool right = fold.kept(1, carried, x);
        fold.coming(x = next(ahead));
        for (int step = done; step < count; ++step) {
          const Compute following = next(ahead);
          const i64 exponent = fold.exponent + fold.top;
          const int after = begin + way * (step + 1 < count ? step + 1 : step);
          const Compute sum = fold(carried, 0, following, SHARED ? 0 : after);
          carried = sum * fold.factor;
          if (every || step == count - 1)
            store(step, REVERSE ? Scaled<Compute>::log(sum, exponent)
                                : Scaled<Compute>::log(carried, fold.exponent));
          right = right && ((REVERSE && step == count - 1) || fold.kept(sum, carried, x));
          x = following;
        }
        if (!fold.largest(!right)) return;
        __syncthreads();  // between what was tried and the other way
      }
      Ahead<A> ahead = emissions();
      LogFold<A, N, SHARED, REVERSE> fold(p, chain, int(threadIdx.x), room, true);
      for (int step = done; step < count; ++step) {
        const Compute emission = next(ahead);
        own = fold(REVERSE ? own + emission : own, begin + way * step);
        if constexpr (!REVERSE) own += emission;
        if (every || step == count - 1) store(step, fold.offset + double(own));
      }
    } else {
      Ahead<A> ahead = emissions();
      Fold<A, N, SHARED, REVERSE> fold(p, chain, j, from, done < count);
      for (int step = done; step < count; ++step) {
        Compute* now = room + step % 2 * line;
        Compute emission = A::start();
        if constexpr (FACTORED) emission = next(ahead);
        if constexpr (FACTORED && REVERSE) own = settled(p, A::mul(emission, own));
        if (there) now[j] = own;
        chain_barrier<N>();  // between storing the entries and reading them; by turns
        own = settled(p, fold(now, begin + way * (step + 1 < count ? step + 1 : step)));
        if constexpr (FACTORED && !REVERSE) own = settled(p, A::mul(own, emission));
        if (every || step == count - 1) store(step, own);
      }
    }
  }
};

// Kernel: the product of the matrices of a part of a chain, over log_plus. A block has all rows of it,
// a warp some of these, so that a matrix is read, and raised to exponentials, once. Scaled as by
// ScaledFold, each row by its own largest entry, and computed once more by logarithms where that is
// not right. `rows` parts of `steps` steps each make up a chain.
template <class A, int N>
struct ChainProduct {
  using T = typename A::Compute;
  using Storage = typename A::Storage;
  using Number = Scaled<T>;
  using Fold = ScaledFold<A, N, false, false>;
  static constexpr int WARPS = 8, ROWS = (N + WARPS - 1) / WARPS, LINE = (N + 3) / 4 * 4;
  static_assert(N <= 32, "a lane has a column");

  SR_FN static void run(const ChainParams& p) {
    const i64 chain = blockIdx.x / u32(p.rows);
    const int part = int(blockIdx.x % u32(p.rows)), first = part * p.steps;
    const int count = min(chain_length(p, chain) - first, p.steps);
    if (count <= 0) return;
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, j = min(lane, N - 1);
    const auto* a = static_cast<const Storage*>(p.a) + chain * p.a_batch + first * p.a_step;
    auto* y = static_cast<Storage*>(p.y) + chain * p.y_batch + part * p.y_step;
    T* room = shared_memory<T>();  // [2][WARPS * ROWS][LINE]
    T own[ROWS];                   // logarithms
    i64 exponents[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) own[r] = entry(p, a, warp * ROWS + r, j);
    if (scaled(p, a, count, room, own, exponents)) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        put(p, y, warp * ROWS + r, lane, Number::log(own[r], exponents[r]));
    } else {
      by_logarithms(p, a, y, count, room);
    }
  }
  SR_FN static T entry(const ChainParams& p, const Storage* a, int row, int j) {
    return A::decode(a[min(row, N - 1) * p.a_row + j * p.a_col]);
  }
  SR_FN static void put(const ChainParams& p, Storage* y, int row, int lane, double found) {
    if (row < N && lane < N) y[row * p.y_row + lane] = A::encode(T(found));
  }

  // `own` becomes what times 2^exponents is the product. Whether it is right.
  SR_FN static bool scaled(const ChainParams& p, const Storage* a, int count, T* room,
                           T (&own)[ROWS], i64 (&exponents)[ROWS]) {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, j = min(lane, N - 1);
    T* carried = room + warp * ROWS * LINE;  // [ROWS][LINE], of this warp
    T* matrix = room + WARPS * ROWS * LINE;  // [N][LINE]
    i32* tops = reinterpret_cast<i32*>(room + 2 * WARPS * ROWS * LINE);  // [2][WARPS]
    bool right = true;
    T raw[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const T x = own[r];
      const Number number = Number::exp(x);
      const int high = max_of_warp(number.k);
      exponents[r] = i64(high) - Fold::LEVEL;
      own[r] = number.value(high - Fold::LEVEL);
      right = right && (x == -infinity<T>() || (own[r] >= Fold::KEPT && own[r] <= 1 / Fold::KEPT));
      raw[r] = count > 1 ? entry(p, a + p.a_step, warp * ROWS + r, j) : T(0);
    }
    for (int step = 1; step < count; ++step) {
      i32* to = tops + step % 2 * WARPS;
      T most = raw[0];
#pragma unroll
      for (int r = 1; r < ROWS; ++r) most = raw[r] > most ? raw[r] : most;
      int high = max_of_warp(Number::exp(most).k);
      if (lane == 0) to[warp] = high;
      __syncwarp();  // between the last reading of the rows and storing the next
      if (lane < LINE) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) carried[r * LINE + lane] = own[r];
      }
      __syncthreads();  // between storing what the largest entry is and reading it; by turns
#pragma unroll
      for (int i = 0; i < WARPS; ++i) high = max(high, to[i]);
      if (high == Number::NONE) high = 0;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const T x = raw[r], raised = Number::rough(x, high);
        right = right && !(raised < Fold::SMALL && x > -infinity<T>());
        if (warp * ROWS + r < N && lane < LINE) matrix[(warp * ROWS + r) * LINE + lane] = raised;
        if (step + 1 < count) raw[r] = entry(p, a + (step + 1) * p.a_step, warp * ROWS + r, j);
      }
      __syncthreads();  // between storing the matrix and reading it
      T sums[ROWS] = {};
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        Pack<T, 4> fours[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
          fours[r] = *reinterpret_cast<const Pack<T, 4>*>(carried + r * LINE + i);
#pragma unroll
        for (int k = 0; k < 4 && i + k < N; ++k) {
          const T column = matrix[(i + k) * LINE + j];
#pragma unroll
          for (int r = 0; r < ROWS; ++r) sums[r] = fma(fours[r].x[k], column, sums[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const int top = Number::exponent(max_of_warp(Number::word(sums[r])));
        const int shift = max(top - Fold::LEVEL, -3 * Fold::LEVEL);
        own[r] = sums[r] * Number::power(-shift);
        exponents[r] += high + shift;
        right = right && (sums[r] == 0 || (own[r] >= Fold::KEPT && own[r] <= 1 / Fold::KEPT));
      }
    }
    const u32 wrong = ballot(!right);
    i32* to = tops + count % 2 * WARPS;
    if (lane == 0) to[warp] = wrong != 0;
    __syncthreads();  // between storing and reading whether all is right
    int any = 0;
    for (int i = 0; i < WARPS; ++i) any |= to[i];
    return !any;
  }

  // The same, whatever the numbers are.
  SR_CALL static void by_logarithms(const ChainParams& p, const Storage* a, Storage* y, int count,
                                    T* room) {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, j = min(lane, N - 1);
    T* carried = room + warp * LINE;  // [LINE], of this warp
    for (int row = warp; row < N; row += WARPS) {
      T own = entry(p, a, row, j);
      double offset = 0;
      for (int step = 1; step < count; ++step) {
        const Storage* of = a + step * p.a_step;
        __syncwarp();  // between reading the row and storing the next
        if (lane < LINE) carried[lane] = own;
        __syncwarp();  // between storing the row and reading it
        T high = carried[0] + entry(p, of, 0, j), sum = 0;
        for (int i = 1; i < N; ++i) high = max(high, carried[i] + entry(p, of, i, j));
        const bool finite = high > -infinity<T>() && high < infinity<T>();
        for (int i = 0; finite && i < N; ++i) sum += sr::exp(carried[i] + entry(p, of, i, j) - high);
        own = finite ? high + sr::log(sum) : high;
        T most = own;
        for (int mask = 16; mask; mask /= 2) most = max(most, shuffle_xor(most, mask));
        if (!(most > -infinity<T>() && most < infinity<T>())) continue;
        own -= most;
        offset += double(most);
      }
      put(p, y, row, lane, offset + double(own));
    }
  }
};

// Kernel: the best sequence of states, and its score.
template <class A, int N, bool SHARED>
struct BestPath {
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int CHASED = 4096;  // pointers that are in shared memory at once

  SR_FN static void run(const ChainParams& p) {
    const int states = chain_states<N>(p), line = chain_line<N>(p);
    const i64 chain = blockIdx.x;
    const bool there = int(threadIdx.x) < states;
    const int j = there ? int(threadIdx.x) : 0, length = chain_length(p, chain);
    if (p.mode & CHAIN_WHOLE) {
      for (int step = max(length, 0) + int(threadIdx.x); step < p.steps; step += int(blockDim.x))
        p.path[chain * p.steps + step] = -1;
      if (length <= 0 && threadIdx.x == 0)
        static_cast<Storage*>(p.total)[chain] = A::encode(chain_nothing<Compute>(length));
    }
    if (length <= 0) return;
    Compute* room = shared_memory<Compute>();  // [2][line]
    const Storage* e = static_cast<const Storage*>(p.e) + chain * p.e_batch;
    u16* pointers = p.pointers + chain * p.steps * states;  // [steps][states]
    Compute own = chain_start<A>(p, chain, j, e);
    Fold<A, N, SHARED, false> fold(p, chain, j, 0, length > 1);
    Ahead<A> ahead(room + 2 * line, e + p.e_step + j, p.e_step, length - 1);
    ask_first(ahead);
    for (int step = 1; step < length; ++step) {
      Compute* now = room + step % 2 * line;
      if (there) now[j] = own;
      chain_barrier<N>();  // between storing the scores and reading them; by turns
      int from;
      own = fold(now, step + 1 < length ? step : step - 1, from);
      arrived();
      own = A::mul(own, ahead.take());
      ask_next(ahead);
      if (there) pointers[i64(step) * states + j] = u16(from);
    }
    __syncthreads();  // between reading the last scores and overwriting them
    own = A::mul(own, chain_end<A>(p, chain, j));
    if (there) room[j] = own;
    __syncthreads();  // between storing the scores (and pointers) and reading them
    Compute best = room[0];
    int at = 0;
    for (int i = 1; i < states; ++i) {
      const Compute join = A::add(best, room[i]);
      if (!Fold<A, N, SHARED, false>::same(join, best)) at = i;
      best = join;
    }
    i32* path = p.path + chain * p.steps;
    if (threadIdx.x == 0) static_cast<Storage*>(p.total)[chain] = A::encode(best);
    // back along the pointers, some steps of which are brought to shared memory at a time
    u16* near = reinterpret_cast<u16*>(room + 2 * line);  // [CHASED], where emissions were
    const int most = CHASED / states > 0 ? CHASED / states : 1;
    for (int high = length - 1; high > 0; high -= most) {
      const int low = high - most < 0 ? 0 : high - most;
      const u16* base = pointers + i64(low + 1) * states;
      __syncthreads();  // between the last use of pointers and overwriting them
      for (int i = int(threadIdx.x); i < (high - low) * states; i += int(blockDim.x))
        near[i] = base[i];
      __syncthreads();  // between storing the pointers and reading them
      for (int step = high; step > low; --step) {  // all threads alike
        if (threadIdx.x == 0) path[step] = at;
        at = near[(step - low - 1) * states + at];
      }
    }
    if (threadIdx.x == 0) path[0] = at;
  }
};

// Kernel: the `rows` best sequences of states and their scores, over max_plus, best first. Each state
// keeps as many ways to it, and joins those to the states before until one is too bad.
template <class A>
struct BestPaths {
  using T = typename A::Compute;
  using Storage = typename A::Storage;

  // Ways, best first; NaN is better than any number, and what is -inf is none.
  struct Ways {
    T* score;   // [count], `pitch` apart
    u32* from;  // the state before, and which of its ways, in 16 bits each
    int count, pitch;

    SR_FN static bool better(T x, T y) { return x > y || (x != x && y == y); }
    SR_FN void clear() {
      for (int r = 0; r < count; ++r) score[r * pitch] = -infinity<T>();
    }
    // Whether it is one of the best so far.
    SR_FN bool put(T value, u32 way) {
      int r = count - 1;
      if (!better(value, score[r * pitch])) return false;
      for (; r && better(value, score[(r - 1) * pitch]); --r) {
        score[r * pitch] = score[(r - 1) * pitch];
        from[r * pitch] = from[(r - 1) * pitch];
      }
      score[r * pitch] = value;
      from[r * pitch] = way;
      return true;
    }
    // The ways through a state, whose ways have these scores, that go on by `own`.
    SR_FN void join(const T* scores, int apart, int state, T own) {
      for (int r = 0; r < count; ++r) {
        const T before = scores[r * apart];
        if (before == -infinity<T>() || !put(A::mul(before, own), u32(state) << 16 | u32(r))) break;
      }
    }
    SR_FN void times(T own) {
      for (int r = 0; r < count; ++r)
        if (score[r * pitch] != -infinity<T>()) score[r * pitch] = A::mul(score[r * pitch], own);
    }
  };

  SR_FN static void run(const ChainParams& p) {
    const i64 chain = blockIdx.x;
    const int states = p.states, count = p.rows, threads = int(blockDim.x);
    const int j = int(threadIdx.x), length = chain_length(p, chain);
    const bool there = j < states;
    if (length <= 0) return;
    T* now = shared_memory<T>();          // [count][threads]
    T* next = now + count * threads;      // [count][threads]
    u32* from = reinterpret_cast<u32*>(next + count * threads);  // [count][threads]
    u32* pointers = reinterpret_cast<u32*>(p.pointers) + chain * p.steps * count * states;
    const Storage* e = static_cast<const Storage*>(p.e) + chain * p.e_batch + j;
    if (there) {
      Ways{now + j, from + j, count, threads}.clear();
      now[j] = A::decode(static_cast<const Storage*>(p.x)[chain * p.x_batch + j]);
    }
    for (int step = 1; step < length; ++step) {
      __syncthreads();  // between storing the scores and reading them, and the other way round
      if (there) {
        const ChainMatrix<A, false> matrix(p, chain, j);
        Ways ways{next + j, from + j, count, threads};
        ways.clear();
        for (int i = 0; i < states; ++i) ways.join(now + i, threads, i, matrix(step - 1, i));
        ways.times(A::decode(e[step * p.e_step]));
        for (int r = 0; r < count; ++r)
          pointers[(i64(step) * count + r) * states + j] = from[r * threads + j];
      }
      T* const last = now;
      now = next;
      next = last;
    }
    if (there)
      Ways{now + j, from + j, count, threads}.times(
          A::decode(static_cast<const Storage*>(p.end)[chain * p.end_batch + j]));
    __syncthreads();  // between storing scores (and pointers) and reading them
    if (j == 0) {
      Ways best{next, from, count, 1};
      best.clear();
      for (int i = 0; i < states; ++i) best.join(now + i, threads, i, T(0));
    }
    __syncthreads();  // between finding the best and following them
    for (int r = j; r < count; r += threads) {
      const T score = next[r];
      static_cast<Storage*>(p.total)[chain * count + r] = A::encode(score);
      if (score == -infinity<T>()) continue;
      i32* path = p.path + (chain * count + r) * p.steps;
      u32 at = from[r];
      for (int step = length - 1; step > 0; --step) {
        path[step] = i32(at >> 16);
        at = pointers[(i64(step) * count + (at & 0xffffu)) * states + (at >> 16)];
      }
      path[0] = i32(at >> 16);
    }
  }
};

// Kernel: sequences of states drawn by their probabilities, from what was carried over log_plus. A
// warp draws one, from the last state back: the first at which the running sum of shares exceeds a
// uniform number's part of the whole.
template <class A>
struct Draw {
  using T = typename A::Compute;

  SR_FN static void run(const ChainParams& p) {
    const i64 chain = blockIdx.x / u32(p.rows), draw = blockIdx.x % u32(p.rows);
    const int lane = int(threadIdx.x), length = chain_length(p, chain);
    const i64 base = draw * p.draw + chain * p.steps;
    const T* uniforms = static_cast<const T*>(p.x) + base;
    const T* rows = static_cast<const T*>(p.y) + chain * p.y_batch;
    const T* along = static_cast<const T*>(p.end) + chain * p.end_batch;  // what follows the states
    i64 between = 1;  // from one state's entry to the next one's
    for (int step = length - 1; step >= 0; --step) {
      const T* row = rows + step * p.y_step;
      const int state = choose(row, along, between, p.states, uniforms[step], lane);
      if (lane == 0) p.path[base + step] = state;
      along = static_cast<const T*>(p.a) + chain * p.a_batch + (step - 1) * p.a_step +
              state * p.a_col;
      between = p.a_row;
    }
  }
  SR_FN static int choose(const T* row, const T* along, i64 between, int states, T uniform,
                          int lane) {
    T high = -infinity<T>();
    for (int i = lane; i < states; i += 32) high = max(high, row[i] + along[i * between]);
    for (int mask = 16; mask; mask /= 2) high = max(high, shuffle_xor(high, mask));
    if (!(high > -infinity<T>() && high < infinity<T>())) high = 0;
    const auto share = [&](int i) {
      return i < states ? sr::exp(row[i] + along[i * between] - high) : T(0);
    };
    T total = 0;
    for (int i = lane; i < states; i += 32) total += share(i);
    for (int mask = 16; mask; mask /= 2) total += shuffle_xor(total, mask);
    T left = total * uniform;
    int chosen = 0;  // or the last one that has a share, since sums are rounded
    for (int first = 0; first < states; first += 32) {
      const T own = share(first + lane);
      T sum = own;  // of this lane and of those before
      for (int by = 1; by < 32; by *= 2) {
        const T before = shuffle(sum, lane < by ? lane : lane - by);
        sum += lane < by ? T(0) : before;
      }
      const u32 some = ballot(own > 0), beyond = ballot(own > 0 && sum > left);
      if (some) chosen = first + bit_length(some) - 1;
      if (beyond) return first + bit_length(beyond & (~beyond + 1)) - 1;
      left -= shuffle(sum, 31);
    }
    return chosen;
  }
};

// Kernel: the logarithm of the sum over all sequences of states (WANTED 0); also the probabilities
// of states (1), and of pairs of states (2). TAGGED: less the scores of given states.
//
// Exponentials are carried, scaled by powers of two. Where numbers are too far apart for that, or
// are no finite numbers, all is computed once more by logarithms.
template <class A, int N, bool SHARED, int WANTED, bool TAGGED = false>
struct Posterior {
  static constexpr bool STATES = WANTED > 0, PAIRS = WANTED > 1;
  using T = typename A::Compute;
  using Storage = typename A::Storage;

  SR_FN static void run(const ChainParams& p) {
    const i64 chain = blockIdx.x;
    const int length = chain_length(p, chain);
    if (p.mode & CHAIN_WHOLE) prepare(p, chain, length);
    if (length <= 0) return;
    double total = 0;
    bool found = false;
    if constexpr (LogFold<A, N, SHARED, false>::HELD) found = scaled(p, chain, length, total);
    if (!found) total = by_logarithms(p, chain, length);
    if constexpr (TAGGED) less_tags(p, chain, length, total);
  }

  // Whether all is found this way. `y` keeps what is carried forward, less than 0 where its sum may
  // be wrong, until the probabilities are there. What states that may be wrong have is too much, so
  // that they are if that is nothing.
  SR_FN static bool scaled(const ChainParams& p, i64 chain, int length, double& total) {
    using Forward = ScaledFold<A, N, SHARED, false>;
    using Number = Scaled<T>;
    constexpr T NOTHING = Forward::NARROW ? T(0x1p-44) : T(0x1p-80);
    const int thread = int(threadIdx.x);
    const bool there = thread < N;
    const int j = there ? thread : 0;
    T* room = shared_memory<T>();  // [2][line], [2][2][4] words
    const T* e = static_cast<const T*>(p.e) + chain * p.e_batch + j;
    T* out = static_cast<T*>(p.y) + chain * p.y_batch + j;
    i64* exponents = p.offsets + chain * p.steps;
    const T last = chain_end<A>(p, chain, j);
    char* rings = reinterpret_cast<char*>(room + 4 * chain_line<N>(p));
    T sum, end;
    i64 whole;  // the sum over all sequences is sum 2^whole
    bool right, doubtful = false;
    {
      Ahead<A> ahead(rings, e + p.e_step, p.e_step, length - 1);
      ask_first(ahead);
      Forward fold(p, chain, thread, room, 0, length > 1);
      T coming = chain_start<A>(p, chain, j, e - j), own = fold.first(coming);
      right = STATES || fold.kept(1, own, coming);
      T following = 0;  // of the step after: taken early, what is behind it in the code waits
      const auto take = [&] {
        arrived();
        following = ahead.take();
        ask_next(ahead);
      };
      if (STATES && there) out[0] = own;
      if (STATES && thread == 0) exponents[0] = fold.exponent;
      if (length > 1) take();
      fold.coming(coming = following);
      for (int step = 1; step < length; ++step) {
        take();
        const T found = fold(own, STATES ? Forward::FLOOR : T(0), following, 0);
        own = found * fold.factor;
        if constexpr (STATES) {
          doubtful = found < Forward::LEAST;
          if (there) out[step * p.y_step] = doubtful ? -own : own;
          if (thread == 0) exponents[step] = fold.exponent;
        } else {
          right = right && fold.kept(found, own, coming);
        }
        coming = following;
      }
      const Number number = Number::exp(there ? last : -infinity<T>());
      const int high = fold.largest(number.k);
      end = own * number.value(high);
      sum = fold.all(end);
      whole = fold.exponent + high;
      right = right && sum >= Forward::LEAST && sum < infinity<T>();
      if (fold.largest(!right)) return false;
    }
    total = Number::log(sum, whole);
    if (thread == 0) static_cast<T*>(p.total)[chain] = T(total);
    if constexpr (STATES) {
      using Backward = ScaledFold<A, N, SHARED, true>;
      __syncthreads();  // between the forward pass and the backward pass
      Ahead<A> ahead(rings, e + (length - 2) * p.e_step, -p.e_step, length - 1);
      Ahead<A> forward(rings + ahead.bytes(), out + (length - 2) * p.y_step, -p.y_step, length - 1);
      Ahead<Exponents> behind(rings + 2 * ahead.bytes(), exponents + length - 2, -1, length - 1);
      ask_first(ahead, forward, behind);
      const T part = 1 / sum;
      Backward fold(p, chain, thread, room, 0, length > 1);
      T own = fold.first(last + e[(length - 1) * p.e_step]), before = 0, coming = 0;
      T expected[PAIRS ? N : 1] = {};  // [N]: of pairs, but for the factor that all steps share
      i64 exponent = 0;
      const auto put = [&](int step, T value) {
        right = right && value <= (doubtful ? NOTHING : T(1.5));
        if (there) out[step * p.y_step] = doubtful ? T(0) : value;
      };
      const auto take = [&] {
        arrived();
        coming = ahead.take();
        before = forward.take();
        exponent = behind.take();
        ask_next(ahead, forward, behind);
      };
      put(length - 1, end * part);
      if (length > 1) take();
      fold.coming(coming);
      for (int step = length - 2; step >= 0; --step) {
        const i64 apart = exponent + fold.exponent - whole + fold.top;
        const int near = int(max(i64(-4096), min(apart, i64(4096))));
        const T share = Number::times_power(abs(before), near) * part;
        const bool low = before < 0;
        take();
        const T found = fold(own, Backward::FLOOR, coming, 0, [&](int i, T x) {
          if constexpr (PAIRS) expected[i] = fma(share, x, expected[i]);
        });
        doubtful = low || found < Backward::LEAST;
        put(step, share * found);
        own = found * fold.factor;
      }
      if (fold.largest(!right)) return false;
      if constexpr (PAIRS) {
        T* pairs = static_cast<T*>(p.pairs) + chain * p.pairs_batch + j * p.pairs_row;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const T value = expected[i] * fold.column[i];
          if (there) pairs[i] = p.mode & CHAIN_WHOLE ? value : pairs[i] + value;
        }
      }
    }
    return true;
  }

  // The same by logarithms.
  SR_CALL static double by_logarithms(const ChainParams& p, i64 chain, int length) {
    const int states = chain_states<N>(p), line = chain_line<N>(p), thread = int(threadIdx.x);
    const bool there = thread < states;
    const int j = there ? thread : 0;
    T* room = shared_memory<T>();  // [2][2][line]
    const T* e = static_cast<const T*>(p.e) + chain * p.e_batch + j;
    T* out = static_cast<T*>(p.y) + chain * p.y_batch + j;
    if (PAIRS && there && p.mode & CHAIN_WHOLE) {  // the row that this thread adds to
      T* pairs = static_cast<T*>(p.pairs) + chain * p.pairs_batch + j * p.pairs_row;
      for (int i = 0; i < states; ++i) pairs[i] = 0;
    }
    __syncthreads();  // between what was tried and this
    const T last = chain_end<A>(p, chain, j);
    // forward: what each state adds to the offset of its step is kept where the probabilities will
    // be
    T own = chain_start<A>(p, chain, j, e - j);
    if (STATES && there) out[0] = own;
    LogFold<A, N, SHARED, false> fold(p, chain, thread, room, length > 1);
    Ahead<A> ahead(room + 4 * line, e + p.e_step, p.e_step, length - 1);
    ask_first(ahead);
    for (int step = 1; step < length; ++step) {
      own = fold(own, step - 1);
      arrived();
      own += ahead.take();
      ask_next(ahead);
      if (STATES && there) out[step * p.y_step] = own;
    }
    fold.share(own + last);
    const T high = fold.largest(fold.seen + line);
    T sum = 0;
#pragma unroll 4
    for (int i = 0; i < states; ++i) sum += sr::exp(fold.seen[line + i] - high);
    const bool finite = high > -infinity<T>() && high < infinity<T>();
    const double total =
        finite ? fold.offset + double(high) + double(sr::log(sum)) : double(high);
    if (thread == 0) static_cast<T*>(p.total)[chain] = T(total);
    if constexpr (STATES) backward(p, chain, total);
    return total;
  }
  // Zeros where nothing, or not all, is written.
  SR_FN static void prepare(const ChainParams& p, i64 chain, int length) {
    const int states = chain_states<N>(p), j = int(threadIdx.x);
    if (length <= 0 && j == 0) static_cast<T*>(p.total)[chain] = chain_nothing<T>(length);
    if (j >= states) return;
    if constexpr (STATES) {
      T* out = static_cast<T*>(p.y) + chain * p.y_batch + j;
      for (int step = max(length, 0); step < p.steps; ++step) out[step * p.y_step] = 0;
    }
    if constexpr (PAIRS) {
      if (length > 0) return;
      T* pairs = static_cast<T*>(p.pairs) + chain * p.pairs_batch + j * p.pairs_row;
      for (int i = 0; i < states; ++i) pairs[i] = 0;
    }
  }
  // Take off the total the score of given states, and off the probabilities what these have.
  SR_FN static void less_tags(const ChainParams& p, i64 chain, int length, double total) {
    const int states = chain_states<N>(p), threads = int(blockDim.x);
    const T* e = static_cast<const T*>(p.e) + chain * p.e_batch;
    const T* a = static_cast<const T*>(p.a) + chain * p.a_batch;
    T* out = static_cast<T*>(p.y) + chain * p.y_batch;
    T* pairs = static_cast<T*>(p.pairs) + chain * p.pairs_batch;
    const i64* tags = p.tags + chain * p.tags_batch;
    double score = 0;
    bool known = true;
    // loads alone, so that some steps' are under way at once
#pragma unroll 4
    for (int step = int(threadIdx.x); step < length; step += threads) {
      const bool last = step == length - 1;
      i64 tag = tags[step], next = last ? 0 : tags[step + 1];
      if (!(tag >= 0 && tag < states && next >= 0 && next < states)) {
        known = false;
        tag = next = 0;
      }
      score += double(e[step * p.e_step + tag]);
      if (step == 0 && p.x) score += double(static_cast<const T*>(p.x)[chain * p.x_batch + tag]);
      score += double(last ? chain_end<A>(p, chain, int(tag))
                           : a[step * p.a_step + tag * p.a_row + next * p.a_col]);
    }
    if (!known) {
      *p.errors = 1;
      score = infinity<double>() - infinity<double>();
    }
    __syncthreads();  // between storing the probabilities, and reading sums, and changing them
    for (int step = int(threadIdx.x); STATES && known && step < length; step += threads) {
      const i64 tag = tags[step];
      atomic_add(out + step * p.y_step + tag, T(-1));
      if constexpr (PAIRS) {
        if (step < length - 1)
          atomic_add(pairs + step * p.pairs_step + tag * p.pairs_row + tags[step + 1], T(-1));
      }
    }
    for (int mask = 16; mask; mask /= 2) score += shuffle_xor(score, mask);
    double* parts = shared_memory<double>();  // [threads / 32], where sums were
    if (threads > 32) {
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = score;
      __syncthreads();  // between storing the parts and reading them
    }
    if (threadIdx.x) return;
    for (int i = 1; i < threads / 32; ++i) score += parts[i];
    static_cast<T*>(p.total)[chain] = T(total - score);
  }
  SR_FN static void backward(const ChainParams& p, i64 chain, double total) {
    const int states = chain_states<N>(p), line = chain_line<N>(p), thread = int(threadIdx.x);
    const bool there = thread < states;
    const int j = there ? thread : 0, length = chain_length(p, chain);
    T* room = shared_memory<T>();  // [2][2][line]
    const T* e = static_cast<const T*>(p.e) + chain * p.e_batch + j;
    T* out = static_cast<T*>(p.y) + chain * p.y_batch + j;
    T own = chain_end<A>(p, chain, j);
    __syncthreads();  // between the forward pass and the backward pass
    const bool possible = total - total == 0;
    const bool none = p.mode & CHAIN_WHOLE && total == -infinity<double>();
    const T nan = none ? T(0) : infinity<T>() - infinity<T>();  // where no sequence is possible
    LogFold<A, N, SHARED, true> fold(p, chain, thread, room, length > 1);
    using Kept = LogFold<A, N, SHARED, true>;
    T expected[Kept::HOLDS] = {};  // [N]: of pairs, but for the factor that all steps share
    T* pairs = static_cast<T*>(p.pairs) + chain * p.pairs_batch + j * p.pairs_row;
    char* rings = reinterpret_cast<char*>(room + 4 * line);
    Ahead<A> ahead(rings, e + (length - 1) * p.e_step, -p.e_step, length);
    Ahead<A> forward(rings + ahead.bytes(), out + (length - 1) * p.y_step, -p.y_step, length);
    ask_first(ahead, forward);
    T emission = 0;  // of the step after
    for (int step = length - 1; step >= 0; --step) {
      arrived();
      const T before = forward.take(), coming = ahead.take();
      ask_next(ahead, forward);
      if (step < length - 1) own = fold(own + emission, step);
      // of each step's own sum: `own` is large where numbers are far apart, and so are its errors
      const T part = fold.part(double(before) + double(own));
      if (there) out[step * p.y_step] = possible ? part : nan;
      if (PAIRS && step < length - 1) {
        // of this state's part, by what each of the next states adds to its sum
        const double all = double(own) + fold.offset - fold.seen_offset;
        if (!fold.exact) {
          const T factor = part > 0 ? part * sr::exp(T(double(fold.top) - all)) : T(0);
#pragma unroll
          for (int i = 0; i < Kept::HOLDS; ++i)
            expected[i] = fma(factor, fold.seen[i], expected[i]);
        } else if (there && possible && part > 0) {
          T* to = pairs + step * p.pairs_step;
#pragma unroll 4
          for (int i = 0; i < states; ++i)
            to[i] += part * sr::exp(T(double(fold.seen[line + i] + fold.matrix(step, i)) - all));
        }
      }
      emission = coming;
    }
    if constexpr (PAIRS) {
      if (!there) return;
      if (!possible) {
        for (int step = 0; step < (p.pairs_step ? length - 1 : length > 1); ++step)
          for (int i = 0; i < states; ++i) pairs[step * p.pairs_step + i] = nan;
      } else if constexpr (Kept::HELD) {
#pragma unroll
        for (int i = 0; i < Kept::HOLDS; ++i) pairs[i] += expected[i] * fold.column[i];
      }
    }
  }

  struct Exponents {
    using Compute = i64;
    using Storage = i64;
    SR_FN static i64 decode(i64 x) { return x; }
  };
};

// The parameters of TotalGradients; the same fields in the same order in semiring_mm/gpu/chain.py.
struct GradientParams {
  const void* g;       // [chains], g_step apart: the gradients of totals
  const void* states;  // [chains][each]: the derivatives of each chain's total
  const void* pairs;   // [chains][pairs_each], or none
  void* by_states;     // [chains][each]
  void* by_pairs;      // [pairs_each]
  i64 g_step, each, pairs_each;
  int chains, pieces;  // blocks that write a chain of by_states
};

// Kernel: the chain rule behind Posterior: by_states = g states, and by_pairs the sum of g pairs over
// the chains, which is written by the blocks behind those of by_states, in one order.
template <class T>
struct TotalGradients {
  static constexpr int COLUMNS = 32, ROWS = 8, THREADS = COLUMNS * ROWS, PIECE = 4 * THREADS;

  SR_FN static void run(const GradientParams& p) {
    const auto* g = static_cast<const T*>(p.g);
    const int thread = int(threadIdx.x), block = int(blockIdx.x) - p.chains * p.pieces;
    if (block < 0) {
      const i64 chain = blockIdx.x / u32(p.pieces), first = i64(blockIdx.x % u32(p.pieces)) * PIECE;
      const auto* from = static_cast<const T*>(p.states) + chain * p.each;
      auto* to = static_cast<T*>(p.by_states) + chain * p.each;
      const T own = g[chain * p.g_step];
#pragma unroll
      for (int i = 0; i < PIECE; i += THREADS)
        if (first + i + thread < p.each) to[first + i + thread] = own * from[first + i + thread];
      return;
    }
    const int column = thread % COLUMNS, row = thread / COLUMNS;
    const i64 at = i64(block) * COLUMNS + column;
    T sum = 0;
    if (at < p.pairs_each) {
      const auto* from = static_cast<const T*>(p.pairs) + at;
#pragma unroll 8
      for (int chain = row; chain < p.chains; chain += ROWS)
        sum = fma(g[chain * p.g_step], from[chain * p.pairs_each], sum);
    }
    T* sums = shared_memory<T>();  // [ROWS][COLUMNS]
    sums[thread] = sum;
    __syncthreads();  // between storing the sums and reading them
    if (row || at >= p.pairs_each) return;
    for (int i = 1; i < ROWS; ++i) sum += sums[i * COLUMNS + column];
    static_cast<T*>(p.by_pairs)[at] = sum;
  }
};

}  // namespace sr

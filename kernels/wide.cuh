// Kernels: chains of many states, whose steps all share a matrix, in one launch.
//
// The matrix is too large for the registers of one block (chain.cuh), so a group of blocks computes
// some chains together: each block keeps some columns of the matrix in its shared memory from the
// first step to the last, and computes these entries of all rows (state vectors) of its group. Blocks
// exchange entries through global memory, and all of them run at the same time (cooperative launch).
// Each entry is stored with the number of its step, so that it is read as soon as it is there,
// without a barrier of blocks. Back pointers are followed in the same launch.
//
// Over log_plus a step is a product over plus-times of exp(entry - largest entry of its row); every
// block computes these exponentials for itself. Sums too small to be accurate are computed term by
// term, as in logsum.cuh.
#pragma once
#include "logsum.cuh"

namespace sr {

// The parameters of launches; the same fields in the same order in semiring_mm/gpu/wide.py. Strides
// in elements.
struct WideParams {
  const void* matrix;  // [n][pitch] of Compute: terms of entries; over log_plus UP exp(a - ends)
  const void* ends;    // [2][n] of Compute: of the matrix's columns (REVERSE: rows); see Shift
  const void* a;
  const void* e;       // or none
  const void* x;       // what is carried first; none: the first matrix
  const void* end;     // what the last row is joined with, for `total`
  void* y;             // [chains][steps][rows][n]: what is carried; see WIDE_RELATIVE
  const i64* lengths;  // [chains], or none: all steps
  double* levels;      // [chains][steps]
  void* total;         // [chains], or none; on the way back `whole` is read
  double* whole;       // [chains]: the same
  void* states;        // [chains][steps][n]: probabilities
  void* left;          // [chains][steps][n]: times `right` of a step later and the exponentials of
  void* right;         // the matrix, UP of them: probabilities of pairs of states
  void* pairs;         // [chains][n][n], pairs_batch apart: probabilities are added
  u64* carried;        // [2][all][n] of Compute, by turns, zeros at first; over log_plus less the
                       // offset: 32 bits below the number of the step, twice for 64
  double* offsets;     // [blocks][each]: what has been taken off logarithms; each block has its own
  u32* progress;       // [groups], zeros: blocks that have done all steps
  u16* pointers;       // [chains][steps][states]: the state before each
  i32* path;           // [chains][steps]
  i64 a_row, a_col, e_batch, e_step, x_batch, x_row, end_batch, y_batch, y_step, y_row, pairs_batch;
  int n, rows, steps, mode;
  int first;           // step; -1: what is carried before any
  int all, each;       // rows of all chains, and of a group
  int members, columns;  // blocks of a group, and columns of a block, whole vectors
  int pass, parts;     // rows that are multiplied at once, by so many threads for each entry, ...
  int terms, spread;   // ... each of so many terms; adjacent threads that join the parts
  int column_part, row_part;  // words from one part to the next in shared memory
  int pitch, states_pitch, room;  // words of a row; pointers of a step, whole vectors; bytes
};
// Of mode. RELATIVE: y is less what `levels` has.
enum { WIDE_EVERY = 1, WIDE_EXCLUSIVE = 2, WIDE_RELATIVE = 4 };

// A row that is carried, and the place of a step in its chain.
template <class A, bool REVERSE>
struct WideRow {
  using T = typename A::Compute;
  using Storage = typename A::Storage;

  const WideParams& p;
  int row, chain, within, length, count;

  SR_FN WideRow(const WideParams& p, int row)
      : p(p), row(row), chain(row / p.rows), within(row % p.rows),
        length(p.lengths ? int(p.lengths[chain]) : p.steps), count(length - (p.mode & WIDE_EXCLUSIVE ? 1 : 0)) {}

  SR_FN bool active(int step) const { return count > 0 && step < count; }
  SR_FN bool last(int step) const { return step == count - 1; }
  SR_FN int at(int step) const { return REVERSE ? length - 1 - step : step; }
  SR_FN i64 place(int step, int j) const { return (i64(chain) * p.steps + at(step)) * p.n + j; }
  SR_FN T matrix(int i, int j) const {  // term i of entry j
    return A::decode(static_cast<const Storage*>(
        p.a)[REVERSE ? j * p.a_row + i * p.a_col : i * p.a_row + j * p.a_col]);
  }
  SR_FN T emission(int at, int j) const {
    return A::decode(static_cast<const Storage*>(p.e)[chain * p.e_batch + at * p.e_step + j]);
  }
  SR_FN T first(int step, int j) const {
    if (p.x)
      return A::decode(static_cast<const Storage*>(p.x)[chain * p.x_batch + within * p.x_row + j]);
    const T own = matrix(within, j);
    if (!p.e) return own;
    return A::mul(own, REVERSE ? emission(at(step) + 1, within) : emission(at(step), j));
  }
  // What is carried after a step, where it is wanted.
  SR_FN void store(int step, int j, T value) const {
    const bool every = p.mode & WIDE_EVERY;
    if (step < 0 || !p.y || !(every || last(step))) return;
    const int skipped = length - count;
    const int to = every ? (REVERSE ? at(step) - skipped : at(step) + skipped) : 0;
    auto* y = static_cast<Storage*>(p.y) + chain * p.y_batch + to * p.y_step + within * p.y_row;
    y[j] = A::encode(value);
  }
};

// LOG: ⊕ is logaddexp, ⊗ is a + b. WANTED: on the way back from the ends, probabilities of states
// (1), and of pairs of states (2). PATH: with the state before each, and at the end the best path.
// ROWS: that a thread multiplies at once. HELD: the columns are in shared memory.
template <class A, bool LOG, bool REVERSE, int WANTED, bool PATH, int ROWS, bool HELD>
struct WideChain {
  using Row = WideRow<A, REVERSE>;
  using T = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int THREADS = 256, WARPS = THREADS / 32, V = 16 / int(sizeof(T));
  using Vector = Pack<T, V>;
  // The sums from which on they are right. Of pairs a probability is a product of two factors, both
  // far from the ends of the range.
  SR_FN static constexpr T least() {
    if constexpr (!LOG) return T(0);
    else return WANTED < 2 ? Limits<T>::LEAST : T(sizeof(T) == 4 ? 0x1p-75 : 0x1p-800);
  }

  const WideParams& p;
  const int thread, group, member, base, rows, column, own;  // rows and columns of this block
  T* const slice;    // [parts][terms][columns], or none
  T* const carried;  // [pass / ROWS][parts][terms][ROWS]: what is multiplied
  T* const sums;     // [parts][pass][columns]
  double* const offsets;                     // [pass]
  T *const shifts, *const low, *const ends;  // [pass], [pass], [pass + WARPS][2]

  SR_FN explicit WideChain(const WideParams& p)
      : p(p), thread(int(threadIdx.x)), group(int(blockIdx.x) / p.members),
        member(int(blockIdx.x) % p.members), base(group * p.each), rows(min(p.each, p.all - base)),
        column(member * p.columns), own(min(p.columns, p.n - column)), slice(shared_memory<T>()),
        carried(slice + (HELD ? p.parts * p.column_part : 0)),
        sums(carried + (p.pass / ROWS * p.parts * p.row_part + V - 1) / V * V),
        offsets(reinterpret_cast<double*>(sums + p.parts * p.pass * p.columns)),
        shifts(reinterpret_cast<T*>(offsets + p.pass)), low(shifts + p.pass), ends(low + p.pass) {}

  SR_FN static void run(const WideParams& p) { WideChain(p).walk(); }

  SR_FN void walk() const {
    const int most = longest(), outputs = p.pass * p.columns;
    if constexpr (HELD) hold();
    const int spread = p.spread, place = thread / spread;
    const Row mine = row_of(place / p.columns);  // of the first entry that this thread stores
    for (int step = p.first; step < most; ++step) {
      const bool begins = step == p.first;
      T coming{};  // asked for before the wait
      if (place < outputs && there(0, place) && factored(mine, step))
        coming = mine.emission(mine.at(step), column + place % p.columns);
      for (int first = 0; first < rows; first += p.pass) {
        if (!begins) {
          if constexpr (LOG) raise(first, step);
          else load(first, step);
          __syncthreads();  // between storing what is carried and reading it
          multiply();
          __syncthreads();  // between storing the sums and reading them
        }
        for (int next = place; next - place < outputs; next += THREADS / spread) {
          const int o = min(next, outputs - 1);  // all lanes take part
          T sum{};
          int state = 0;
          if (!begins) {
            sum = joined(o, state);
            if constexpr (PATH) state = chosen(o, sum, state);
          }
          if (thread % spread || next >= outputs || !there(first, o)) continue;
          if (first == 0 && next == place) {
            entry(mine, o, step, sum, state, coming);
          } else {
            const Row row = row_of(first + o / p.columns);
            const int at = column + o % p.columns;
            coming = factored(row, step) ? row.emission(row.at(step), at) : T{};
            entry(row, o, step, sum, state, coming);
          }
        }
        __syncthreads();  // between reading the sums, or holding columns, and what comes then
      }
    }
    if constexpr (!PATH && !(LOG && WANTED == 0)) return;
    if (!p.total) return;
    if constexpr (PATH) await();
    for (int r = member; r < rows; r += p.members) {
      const Row row = row_of(r);
      if (row.count <= 0) continue;
      if constexpr (PATH) follow(row);
      else if constexpr (LOG) add_up(row, r);
      __syncthreads();  // between reading shared memory and storing the next row's
    }
  }

  // Steps of the longest chain of the group; by each warp.
  SR_FN int longest() const {
    int most = 0;
    for (int r = thread % 32; r < rows; r += 32) most = max(most, row_of(r).count);
    for (int mask = 16; mask; mask /= 2) most = max(most, shuffle_xor(most, mask));
    return most;
  }
  SR_FN Row row_of(int r) const { return Row(p, base + min(r, rows - 1)); }
  SR_FN bool there(int first, int o) const {
    return first + o / p.columns < rows && o % p.columns < own;
  }
  SR_FN bool factored(const Row& row, int step) const {
    return p.e && row.active(step) && (REVERSE ? !row.last(step) : step > p.first);
  }
  // Until all blocks of the group have done all steps.
  SR_FN void await() const {
    if (thread == 0 && p.members > 1) {
      memory_fence();
      fetch_add(p.progress + group, 1u);
      wait_for(p.progress + group, u32(p.members));
    }
    __syncthreads();  // between other blocks' pointers, or this block's, and reading them
  }

  // --- the exchange of state vectors, row by row
  //
  // Steps use two buffers by turns, so that step s + 1 overwrites the entries of step s - 1. No block
  // needs these any more: a block stores its entries of step s + 1 after it has read all entries of
  // step s, and every other block stored its entries of step s after it had read those of step s - 1.

  static constexpr int WORDS = int(sizeof(T)) / 4;
  SR_FN u64* word(int step, int row, int k) const {
    return p.carried + ((i64((step + 1) & 1) * p.all + row) * p.n + k) * WORDS;
  }
  SR_FN u32 tag(int step) const { return u32(step - p.first); }  // at least 1
  SR_FN void tell(int step, int row, int k, T value) const {
    u64* to = word(step, row, k);
    const u64 its = u64(tag(step)) << 32;
    if constexpr (WORDS == 1) {
      store_current(to, its | bits_as<u32>(value));
    } else {
      const u64 bits = bits_as<u64>(value);
      store_current(to, its | u32(bits));
      store_current(to + 1, its | bits >> 32);
    }
  }
  // Several entries, asked for at once; 0 for none.
  template <int N>
  SR_FN void gather(const u64* const (&at)[N], int step, T (&x)[N]) const {
    u64 seen[N][WORDS];  // [N][WORDS]
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int w = 0; w < WORDS; ++w) seen[i][w] = at[i] ? load_current(at[i] + w) : 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int w = 0; w < WORDS; ++w)
        if (at[i]) seen[i][w] = wait_for_tag(at[i] + w, seen[i][w], tag(step));
      if constexpr (WORDS == 1) x[i] = bits_as<T>(u32(seen[i][0]));
      else x[i] = bits_as<T>(u64(u32(seen[i][0])) | seen[i][WORDS - 1] << 32);
    }
  }
  SR_FN T entry_of(int step, int row, int k) const {
    const u64* const at[1] = {word(step, row, k)};  // [1]
    T x[1];  // [1]
    gather(at, step, x);
    return x[0];
  }
  // Which of the rows that are multiplied at once have such a step; by each warp.
  SR_FN u64 live(int first, int step) const {
    const auto has = [&](int r) {
      return r < p.pass && first + r < rows && row_of(first + r).active(step);
    };
    const int lane = thread % 32;
    return u64(ballot(has(lane))) | u64(ballot(has(lane + 32))) << 32;
  }

  // The columns of this block to shared memory; those behind the last are any.
  SR_FN void hold() const {
    const int lanes = p.columns / V;
#pragma unroll 8
    for (int i = thread; i < p.n * lanes; i += THREADS) {
      const int k = i / lanes, c = i % lanes * V;
      const T* at = static_cast<const T*>(p.matrix) + i64(k) * p.pitch;
      T* to = slice + k / p.terms * p.column_part + k % p.terms * p.columns + c;
      copy_async<16>(to, at + min(column + c, p.pitch - V));
    }
    copy_commit();
    copy_wait<0>();  // the barrier before the first product is the first step's
  }

  // Load the rows of a step into shared memory; 0 for chains that have ended.
  SR_FN void load(int first, int step) const {
    constexpr int EACH = ROWS < 4 ? 4 / ROWS : 1;  // terms that are asked for at once
    const int all = p.pass / ROWS * p.n;
    const u64 alive = live(first, step);
#pragma unroll 1
    for (int i = thread; i < all; i += EACH * THREADS) {
      const u64* at[EACH * ROWS];  // [EACH][ROWS]
      T x[EACH * ROWS];  // [EACH][ROWS]
#pragma unroll
      for (int t = 0; t < EACH; ++t) {
        const int j = i + t * THREADS, set = j / p.n * ROWS, k = j % p.n;
#pragma unroll
        for (int q = 0; q < ROWS; ++q) {
          const bool there = j < all && alive >> (set + q) & 1;
          at[t * ROWS + q] = there ? word(step, base + first + set + q, k) : nullptr;
        }
      }
      gather(at, step, x);
#pragma unroll
      for (int t = 0; t < EACH; ++t) {
        const int j = i + t * THREADS;
        if (j < all) put(place_of(j / p.n, j % p.n), x + t * ROWS);
      }
    }
  }
  // Load exp(entry - largest entry of its row) into shared memory; 1 for chains that have ended.
  SR_FN void raise(int first, int step) const {
    const u64 alive = live(first, step);
    // the ends of each row: by some warps together, or of some rows by each warp
    const int warps = max(1, WARPS / p.pass), warp = thread / 32, lane = thread % 32;
    for (int r = warp / warps; r < p.pass; r += WARPS / warps) {
      T high = -infinity<T>(), least = infinity<T>();
      constexpr int EACH = 8;  // that are asked for at once
#pragma unroll 1
      for (int from = warp % warps * 32 + lane; from < p.n; from += EACH * 32 * warps) {
        const u64* at[EACH];  // [EACH]
        T x[EACH];  // [EACH]
#pragma unroll
        for (int t = 0; t < EACH; ++t) {
          const int k = from + t * 32 * warps;
          at[t] = k < p.n && alive >> r & 1 ? word(step, base + first + r, k) : nullptr;
        }
        gather(at, step, x);
#pragma unroll
        for (int t = 0; t < EACH; ++t) {
          const int k = from + t * 32 * warps;
          if (k >= p.n) continue;
          place_of(r / ROWS, k)[r % ROWS] = x[t];
          high = max(high, x[t]);  // keeps a NaN
          least = x[t] > -infinity<T>() && x[t] < least ? x[t] : least;
        }
      }
#pragma unroll
      for (int mask = 16; mask; mask /= 2) {
        high = max(high, shuffle_xor(high, mask));
        const T other = shuffle_xor(least, mask);
        least = other < least ? other : least;
      }
      T* to = ends + 2 * (r * warps + warp % warps);
      if (lane == 0) {
        to[0] = high;
        to[1] = least;
      }
    }
    __syncthreads();  // between storing rows and their ends, and reading them
    const auto shift_of = [&](int r, T& least) {
      T high = ends[2 * r * warps];
      least = ends[2 * r * warps + 1];
      for (int w = 1; w < warps; ++w) {
        high = max(high, ends[2 * (r * warps + w)]);
        least = ends[2 * (r * warps + w) + 1] < least ? ends[2 * (r * warps + w) + 1] : least;
      }
      return high > -infinity<T>() && high < infinity<T>() ? high : T(0);
    };
    if (thread < p.pass && first + thread < rows) {
      T least;
      const T shift = shift_of(thread, least);
      double* kept = p.offsets + i64(blockIdx.x) * p.each + first + thread;
      const double before = step > p.first + 1 ? *kept : 0;
      offsets[thread] = before + double(shift);
      shifts[thread] = shift;
      low[thread] = least - shift;
      if (row_of(first + thread).active(step)) *kept = offsets[thread];
    }
#pragma unroll 2
    for (int i = thread; i < p.pass / ROWS * p.n; i += THREADS) {
      const int set = i / p.n * ROWS, k = i % p.n;
      T* to = place_of(set / ROWS, k);
      T x[ROWS];  // [ROWS]
#pragma unroll
      for (int q = 0; q < ROWS; ++q) {
        T unused;
        const T below = to[q] - shift_of(set + q, unused);
        x[q] = lifted(below);
        if constexpr (WANTED > 1) {
          if (k < column || k >= column + own || !(alive >> (set + q) & 1)) continue;
          const Row row = row_of(first + set + q);
          static_cast<T*>(p.right)[row.place(step - 1, k)] = sr::exp(below);
        }
      }
      put(to, x);
    }
  }
  SR_FN T* place_of(int set, int k) const {
    return carried + (set * p.parts + k / p.terms) * p.row_part + k % p.terms * ROWS;
  }
  SR_FN static void put(T* to, const T* x) {  // [ROWS]
    constexpr int N = ROWS < V ? ROWS : V;
#pragma unroll
    for (int q = 0; q < ROWS; q += N) {
      Pack<T, N> some;  // [N]
#pragma unroll
      for (int i = 0; i < N; ++i) some.x[i] = x[q + i];
      *reinterpret_cast<Pack<T, N>*>(to + q) = some;
    }
  }

  // The sums of this block's columns: V columns, ROWS rows and some terms by each thread.
  SR_FN void multiply() const {
    const int lanes = p.columns / V, lane = thread % lanes, slot = thread / lanes;
    const int part = slot % p.parts, set = slot / p.parts;
    if (set >= p.pass / ROWS) return;
    const T* x = carried + (set * p.parts + part) * p.row_part;
    const T* m = column_of(part, min(lane * V, HELD ? p.columns : p.pitch - V - column));
    const i64 pitch = HELD ? p.columns : p.pitch;
    T sum[ROWS][V];  // [ROWS][V]
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int j = 0; j < V; ++j) sum[r][j] = LOG ? T(0) : A::start();
    const auto take = [&](int k) {
      T row[ROWS];  // [ROWS]
      constexpr int N = ROWS < V ? ROWS : V;
#pragma unroll
      for (int q = 0; q < ROWS; q += N) {
        const auto some = *reinterpret_cast<const Pack<T, N>*>(x + k * ROWS + q);
#pragma unroll
        for (int i = 0; i < N; ++i) row[q + i] = some.x[i];
      }
      const auto terms = *reinterpret_cast<const Vector*>(m + k * pitch);  // [V]
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int j = 0; j < V; ++j)
          sum[r][j] = LOG ? T(fma(row[r], terms.x[j], sum[r][j]))
                          : A::fold(sum[r][j], row[r], terms.x[j]);
    };
    const int terms = terms_of(part);
    int k = 0;
#pragma unroll 1
    for (; k + 4 <= terms; k += 4)
#pragma unroll
      for (int i = 0; i < 4; ++i) take(k + i);
#pragma unroll 1
    for (; k < terms; ++k) take(k);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      Vector some;  // [V]
#pragma unroll
      for (int j = 0; j < V; ++j) some.x[j] = sum[r][j];
      T* to = sums + (part * p.pass + set * ROWS + r) * p.columns + lane * V;
      *reinterpret_cast<Vector*>(to) = some;
    }
  }
  SR_FN int terms_of(int part) const { return min(p.terms, p.n - part * p.terms); }
  // The first term of a part, of a column of this block.
  SR_FN const T* column_of(int part, int c) const {
    if constexpr (HELD) return slice + part * p.column_part + c;
    else return static_cast<const T*>(p.matrix) + i64(part) * p.terms * p.pitch + column + c;
  }

  // The join of the parts of an entry; PATH: also the first part that has it. By `spread` threads.
  SR_FN T joined(int o, int& part) const {
    const int apart = p.pass * p.columns, each = (p.parts + p.spread - 1) / p.spread;
    part = thread % p.spread * each;
    const int end = min(part + each, p.parts);
    T best = sums[part * apart + o];
    const auto take = [&](T other, int its) {
      if constexpr (LOG) {
        best += other;
      } else {
        const T join = A::add(best, other);
        const int lower = its < part ? its : part;
        if constexpr (PATH) part = equal(other, best) ? lower : equal(join, best) ? part : its;
        best = join;
      }
    };
#pragma unroll 4
    for (int i = part + 1; i < end; ++i) take(sums[i * apart + o], i);
    for (int mask = 1; mask < p.spread; mask *= 2) {
      const T other = shuffle_xor(best, mask);
      take(other, PATH ? shuffle_xor(part, mask) : 0);
    }
    return best;
  }
  // The first term of a part that an entry is. By `spread` threads.
  SR_FN int chosen(int o, T best, int part) const {
    const int r = o / p.columns, lane = thread % 32, first = lane / p.spread * p.spread;
    best = shuffle(best, first);
    part = shuffle(part, first);
    const T* x = carried + (r / ROWS * p.parts + part) * p.row_part + r % ROWS;
    const T* m = column_of(part, min(o % p.columns, own - 1));
    const i64 pitch = HELD ? p.columns : p.pitch;
    const int terms = terms_of(part);
    int found = terms;
#pragma unroll 4
    for (int k = lane - first; k < terms; k += p.spread) {
      const T term = A::mul(x[k * ROWS], m[k * pitch]);
      if (equal(term, best) || (term != term && best != best)) found = min(found, k);
    }
    for (int mask = 1; mask < p.spread; mask *= 2) found = min(found, shuffle_xor(found, mask));
    return part * p.terms + (found < terms ? found : 0);  // none: no way is better than no way
  }
  SR_FN static bool equal(float x, float y) { return bits_as<u32>(x) == bits_as<u32>(y); }
  SR_FN static bool equal(double x, double y) { return bits_as<u64>(x) == bits_as<u64>(y); }

  // What is carried after a step, of an entry of this block.
  SR_FN void entry(const Row& row, int o, int step, T sum, int state, T coming) const {
    if (!row.active(step)) return;
    const int r = o / p.columns, j = column + o % p.columns;
    const bool begins = step == p.first;
    const double offset = LOG && !begins ? offsets[r] : 0;
    T value = sum;
    if (begins) value = row.first(step, j);
    else if constexpr (LOG) value = logarithm(row, r, j, step, sum, offset);
    const bool factor = factored(row, step);
    if (!REVERSE && factor) value = A::mul(value, coming);
    if constexpr (WANTED > 0) {
      const double nan = p.whole[row.chain] - p.whole[row.chain];  // or 0
      static_cast<T*>(p.states)[row.place(step, j)] =
          nan == 0 ? sr::exp(T(so_far(row, j, step, offset) + double(value))) : T(nan);
    } else if (LOG && p.mode & WIDE_RELATIVE) {
      static_cast<T*>(p.y)[row.chain * p.y_batch + row.at(step) * p.y_step + j] = value;
      if (j == 0) p.levels[i64(row.chain) * p.steps + row.at(step)] = offset;
    } else {
      row.store(step, j, LOG ? T(offset + double(value)) : value);
    }
    if (REVERSE && factor) value = A::mul(coming, value);
    tell(step + 1, row.row, j, value);
    if constexpr (PATH) {
      if (!begins)
        p.pointers[(i64(row.chain) * p.steps + row.at(step)) * p.states_pitch + j] = u16(state);
    }
  }

  // --- over log_plus

  // Of the sum of an entry, less `offset`.
  SR_FN T logarithm(const Row& row, int r, int j, int step, T sum, double offset) const {
    const T* tops = static_cast<const T*>(p.ends);
    T value;
    const bool known = settled(value, sum, T(0), low[r], tops[j], tops[p.n + j], least());
    if (!known) value = term_by_term(row, r, j, step);
    if constexpr (WANTED > 1) {
      const double before = so_far(row, j, step, offset);
      static_cast<T*>(p.left)[row.place(step, j)] =
          known && value > -infinity<T>() ? sr::exp(T(before) + tops[j]) / Limits<T>::UP : T(0);
      T* pairs = static_cast<T*>(p.pairs) + row.chain * p.pairs_batch + i64(j) * p.n;
      for (int i = 0; i < p.n && !known; ++i) {
        const T x = entry_of(step, row.row, i);
        pairs[i] += sr::exp(T(before) + (x - shifts[r] + row.matrix(i, j)));
      }
    }
    return value;
  }
  SR_FN T term_by_term(const Row& row, int r, int j, int step) const {
    const T shift = shifts[r];
    const auto term = [&](int i) { return entry_of(step, row.row, i) - shift + row.matrix(i, j); };
    T high = term(0);
#pragma unroll 4
    for (int i = 1; i < p.n; ++i) high = max(high, term(i));
    if (!(high > -infinity<T>() && high < infinity<T>())) return high;
    T sum = 0;
#pragma unroll 4
    for (int i = 0; i < p.n; ++i) sum += sr::exp(term(i) - high);
    return high + sr::log(sum);
  }
  // What leads to a state, of the total, and what has been taken off the way back.
  SR_FN double so_far(const Row& row, int j, int step, double offset) const {
    const int at = row.at(step);
    const double rest = p.whole[row.chain] - p.levels[i64(row.chain) * p.steps + at];
    const auto* y = static_cast<const T*>(p.y) + row.chain * p.y_batch + at * p.y_step;
    return double(y[j]) - (rest - offset);
  }
  // The logarithm of the sum of what is carried last, joined with `end`.
  SR_FN void add_up(const Row& row, int r) const {
    const auto* end = static_cast<const Storage*>(p.end) + row.chain * p.end_batch;
    const auto value = [&](int j) { return entry_of(row.count, row.row, j) + A::decode(end[j]); };
    const double taken =
        row.count > p.first + 1 ? p.offsets[i64(blockIdx.x) * p.each + r] : 0;
    T high = -infinity<T>(), sum = 0;
    for (int j = thread; j < p.n; j += THREADS) high = max(high, value(j));
    high = joint<false>(high);
    const bool finite = high > -infinity<T>() && high < infinity<T>();
    for (int j = thread; j < p.n && finite; j += THREADS)
      sum += sr::exp(value(j) - high);
    sum = joint<true>(sum);
    if (thread) return;
    const double whole = finite ? taken + double(high) + double(sr::log(sum)) : double(high);
    p.whole[row.chain] = whole;
    static_cast<T*>(p.total)[row.chain] = T(whole);
  }
  // The largest of the threads' values, or their sum.
  template <bool SUM>
  SR_FN T joint(T value) const {
    T* all = shared_memory<T>();  // [THREADS]
    __syncthreads();  // between reading the last result and storing other values
    all[thread] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
      __syncthreads();  // between storing 2 * half values and reading them
      if (thread >= half) continue;
      const T x = all[thread], y = all[thread + half];
      all[thread] = SUM ? x + y : max(x, y);
    }
    __syncthreads();  // between storing the result and reading it
    return all[0];
  }

  // --- the best path

  // The best of the last states, each thread's first, and the way back from it.
  SR_FN void follow(const Row& row) const {
    const auto* end = static_cast<const Storage*>(p.end) + row.chain * p.end_batch;
    T* values = shared_memory<T>();  // [THREADS], then their states
    i32* states = reinterpret_cast<i32*>(values + THREADS);
    T best = A::start();
    int state = p.n;
    for (int j = thread; j < p.n; j += THREADS) {
      const T value = A::mul(entry_of(row.length, row.row, j), A::decode(end[j]));
      const T join = state < p.n ? A::add(best, value) : value;
      if (state == p.n || !same(join, best)) state = j;
      best = join;
    }
    values[thread] = best;
    states[thread] = state;
    __syncthreads();  // between storing each thread's best state and reading all
    if (thread == 0) {
      for (int i = 1; i < THREADS; ++i) {
        if (states[i] == p.n) continue;
        const T join = A::add(best, values[i]);
        const bool tie = same(values[i], best);
        if (tie ? states[i] < state : !same(join, best)) state = states[i];
        best = join;
      }
      static_cast<Storage*>(p.total)[row.chain] = A::encode(best);
    }
    __syncthreads();  // between reading the states and storing pointers there
    i32* path = p.path + i64(row.chain) * p.steps;
    const u16* all = p.pointers + i64(row.chain) * p.steps * p.states_pitch;
    u16* near = shared_memory<u16>();  // [tile][states_pitch]
    const int tile = p.room / (2 * p.states_pitch), chunks = p.states_pitch / 8;
    for (int last = row.length - 1; last > 0; last -= tile) {
      const int least = max(1, last - tile + 1);
#pragma unroll 8
      for (int i = thread; i < (last - least + 1) * chunks; i += THREADS)
        copy_async<16>(near + 8 * i, all + (i64(least) * chunks + i) * 8);
      copy_commit();
      copy_wait<0>();
      __syncthreads();  // between storing the pointers and following them
      for (int step = last; thread == 0 && step >= least; --step) {
        path[step] = state;
        state = near[(step - least) * p.states_pitch + state];
      }
      __syncthreads();  // between following pointers and storing others
    }
    if (thread == 0) path[0] = state;
  }
  SR_FN static bool same(T a, T b) { return a == b || (a != a && b != b); }
};

// Kernel: probabilities of pairs from the products of `left` and `right`, `matrix`, and the
// exponentials of the matrix, `a`. A block has a row of a chain's matrix.
template <class T>
struct WidePairs {
  SR_FN static void run(const WideParams& p) {
    const i64 chain = blockIdx.x / u32(p.n), j = blockIdx.x % u32(p.n);
    if (p.lengths && p.lengths[chain] < 2) return;
    const T nan = T(p.whole[chain] - p.whole[chain]);  // where no sequence is possible, or 0
    const T* sums = static_cast<const T*>(p.matrix) + i64(blockIdx.x) * p.n;
    const T* powers = static_cast<const T*>(p.a) + j * p.a_row;
    T* pairs = static_cast<T*>(p.pairs) + chain * p.pairs_batch + j * p.n;
    for (int i = int(threadIdx.x); i < p.n; i += int(blockDim.x))
      pairs[i] += nan == 0 ? sums[i] * powers[i * p.a_col] : nan;
  }
};

}  // namespace sr

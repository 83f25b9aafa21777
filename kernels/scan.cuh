// Kernel: one pass over an operand: its range, and whether it has a NaN or the integer that stands
// for "no edge". Steps that are right for some entries only are chosen by it.
#pragma once
#include "base.cuh"

namespace sr {

// Three nested dimensions, shortest stride first. A task is what a block reads between two steps of
// its loop: ITEMS times a piece of 256 chunks, `lanes` of them adjacent along the columns.
struct ScanParams {
  const void* a;
  void* found;  // [blocks][3] of Result: least, greatest, odd; or [blocks] of u32: kinds
  i64 column_stride, row_stride, batch_stride;  // in elements
  i64 columns, rows;
  i64 segments, groups, tasks;  // tasks along the columns, along the rows, in all
  i64 column_step, row_step;    // from one of a task's items to the next; one of them is 0
  int lanes;
};

// Kinds of entries, as in gpu/source.py: KINDS.
enum { IS_NAN = 1, IS_MINUS_INF = 2, IS_NEGATIVE = 4, IS_ZERO = 8, IS_POSITIVE = 16, IS_INF = 32,
       IS_FAR = 64, IS_LOSSY = 128, IS_SPREAD = 256 };

// Whether the magnitude of a number other than 0 is below 2^-50, or at least 2^127: the emulation
// of float32 by pairs of shorter floats excludes such entries.
SR_FN bool is_far(float x) {
  constexpr u32 LEAST = u32(127 - 50) << 23, MOST = u32(127 + 127) << 23;
  const u32 size = bits_as<u32>(x) & 0x7fffffffu;
  return size != 0 && size - LEAST >= MOST - LEAST;
}

SR_FN float scanned(half x) { return to_float(x); }
SR_FN float scanned(bfloat x) { return to_float(x); }
SR_FN i32 scanned(i8 x) { return x; }  // narrow integers have no instructions of their own
SR_FN i32 scanned(u8 x) { return x; }
SR_FN i32 scanned(i16 x) { return x; }
SR_FN i32 scanned(u16 x) { return x; }
template <class T>
SR_FN T scanned(T x) { return x; }

// Minimum and maximum that drop NaN.
template <class T>
SR_FN T lesser(T a, T b) { return b < a ? b : a; }
template <class T>
SR_FN T greater(T a, T b) { return b > a ? b : a; }
SR_FN float lesser(float a, float b) { return fminf(a, b); }
SR_FN float greater(float a, float b) { return fmaxf(a, b); }

// What a thread has seen: a range and odd entries.
template <class T>
struct Seen {
  T low, high;  // without NaN and "no edge"
  u32 odd;      // bit 0: NaN or "no edge"; bit 1: is_far

  SR_FN void clear() {  // the empty range
    if constexpr (Is<T>::floating) {
      low = infinity<T>();
      high = -low;
    } else {
      constexpr bool SIGNED = T(-1) < T(0);
      low = T(SIGNED ? (1ull << (8 * sizeof(T) - 1)) - 1 : ~0ull);
      high = SIGNED ? T(-low - 1) : T(0);
    }
    odd = 0;
  }
  SR_FN void join(const Seen& other) {
    low = lesser(low, other.low);
    high = greater(high, other.high);
    odd |= other.odd;
  }
  // The kinds that may lie within the range.
  SR_FN u32 kinds() const {
    u32 found = (odd & 1 ? IS_NAN : 0) | (odd & 2 ? IS_FAR : 0);
    if (low == -infinity<T>()) found |= IS_MINUS_INF;
    if (low < T(0)) found |= IS_NEGATIVE;
    if (low <= T(0) && high >= T(0)) found |= IS_ZERO;
    if (high > T(0)) found |= IS_POSITIVE;
    if (high == infinity<T>()) found |= IS_INF;
    return found;
  }
};

// Result: the 8-byte type in which a range is written. MISSING: the integer that stands for "no
// edge", if HAS_MISSING. VECTOR: 16 bytes can be read at once along the columns. KINDS: only the
// kinds of the entries are wanted; FAR: is_far among them.
template <class Storage, class Result, bool HAS_MISSING, i64 MISSING, bool VECTOR, bool KINDS,
          bool FAR = false>
struct Scan {
  using Value = decltype(scanned(Storage{}));
  static constexpr int THREADS = 256, ITEMS = 8;
  using Piece = Chunk<Storage, VECTOR>;
  static constexpr int V = Piece::V;  // elements of a load
  static_assert(!FAR || KINDS, "far entries are a kind");
  static_assert((THREADS & (THREADS - 1)) == 0, "threads are joined by halves");

  // Take an entry into account.
  SR_FN static void look(Seen<Value>& seen, Storage entry) {
    const Value x = scanned(entry);
    if constexpr (HAS_MISSING) {
      const bool missing = x == Value(MISSING);
      seen.odd |= missing;
      seen.low = missing ? seen.low : lesser(seen.low, x);
      seen.high = missing ? seen.high : greater(seen.high, x);
    } else {
      seen.odd |= x != x;
      if constexpr (FAR) seen.odd |= is_far(x) ? 2 : 0;
      seen.low = lesser(seen.low, x);
      seen.high = greater(seen.high, x);
    }
  }

  // A thread's chunks of one task. EDGE: some are outside; the first one is read again instead.
  template <bool EDGE>
  SR_FN static void items(const ScanParams& p, Seen<Value>& seen, const Storage* from, i64 row,
                          i64 column) {
    const i64 item = p.row_step * p.row_stride + p.column_step * p.column_stride;
    Piece x[ITEMS];  // [ITEMS]
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const bool inside = !EDGE || (row + i * p.row_step < p.rows &&
                                    column + i * p.column_step + V <= p.columns);
      x[i].load_streaming(from + (inside ? i * item : 0));
    }
    compiler_fence();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
#pragma unroll
      for (int v = 0; v < V; ++v) look(seen, x[i][v]);
  }

  // The work of one of `blocks` blocks.
  SR_FN static void run(const ScanParams& p, i64 block, i64 blocks) {
    const int thread = int(threadIdx.x), lane = thread % p.lanes, line = thread / p.lanes;
    [[maybe_unused]] const i64 item = p.row_step * p.row_stride + p.column_step * p.column_stride;
    Seen<Value> seen;
    seen.clear();
    for (i64 task = block; task < p.tasks; task += blocks) {
      const i64 segment = task % p.segments, rest = task / p.segments;
      const i64 group = rest % p.groups, batch = rest / p.groups;
      const i64 column = segment * (p.column_step ? ITEMS * p.column_step : 0) + lane * V;
      const i64 row = p.row_step ? group * ITEMS * p.row_step + line : group;
      const Storage* from = static_cast<const Storage*>(p.a) + batch * p.batch_stride +
                            row * p.row_stride + column * p.column_stride;
      if (row >= p.rows) continue;
      if (row + (ITEMS - 1) * p.row_step < p.rows &&
          column + (ITEMS - 1) * p.column_step + V <= p.columns)
        items<false>(p, seen, from, row, column);
      else if (column + V <= p.columns)
        items<true>(p, seen, from, row, column);
      if constexpr (V > 1) {  // the last columns, fewer than a chunk
        if (p.columns % V == 0) continue;
        for (int i = 0; i < ITEMS && row + i * p.row_step < p.rows; ++i) {
          const i64 at = column + i * p.column_step;
          if (at + V <= p.columns) continue;
          for (int v = 0; at + v < p.columns; ++v) look(seen, from[i * item + v]);
        }
      }
    }

    // join the threads' ranges by halves; one result for each block
    Seen<Value>* all = shared_memory<Seen<Value>>();  // [THREADS]
    all[thread] = seen;
    for (int half = THREADS / 2; half > 0; half /= 2) {
      __syncthreads();  // between storing 2 * half results and reading them
      if (thread < half) all[thread].join(all[thread + half]);
    }
    if (thread > 0) return;
    if constexpr (KINDS) {
      static_cast<u32*>(p.found)[block] = all[0].kinds();
    } else {
      Result* found = static_cast<Result*>(p.found) + 3 * block;
      found[0] = Result(all[0].low);
      found[1] = Result(all[0].high);
      found[2] = Result(all[0].odd);
    }
  }
};

// Two operands in one launch: the first `left_blocks` blocks scan the left one.
struct ScanPairParams {
  ScanParams left, right;
  i64 left_blocks;
};
template <class Left, class Right>
SR_FN void scan_pair(const ScanPairParams& p) {
  if (blockIdx.x < p.left_blocks) Left::run(p.left, blockIdx.x, p.left_blocks);
  else Right::run(p.right, blockIdx.x - p.left_blocks, gridDim.x - p.left_blocks);
}

}  // namespace sr

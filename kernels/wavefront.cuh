// Kernel: the least cost of aligning two sequences, by dynamic programming over the table of all
// pairs of their entries; alignments of many pairs in one launch.
//
// Cell (i, j) needs (i - 1, j), (i, j - 1) and (i - 1, j - 1). A warp has a strip of rows, some rows
// to a lane, and its lanes go along the columns one behind the other: at each step lane l is one
// column behind lane l - 1, which hands over its last row. The warps of a block have strips below
// each other and follow at a distance of two chunks of 32 steps; between them lies a line of memory
// that is always the last row of the lowest strip that has come by.
#pragma once
#include "base.cuh"

namespace sr {

// The parameters of a launch; the same fields in the same order in semiring_mm/gpu/wavefront.py.
struct AlignParams {
  const void* x;           // entries of all first sequences, one after the other: [all][features]
  const void* y;           // of all second ones
  const i64* x_starts;     // [pairs + 1]
  const i64* y_starts;
  const void* table;       // [letters][letters]: costs of codes
  void* lines;             // [blocks][2][width]: costs and, with AFFINE, costs that end in a gap
  void* out;               // [pairs]
  u16* moves;              // [ceil(rows / ROWS)][width]: two bits a row, of the only pair
  i32* path;               // [2][rows + columns], from the last cells back
  i32* steps;              // of the path
  i64 opening, gap, equal, other;  // costs, as doubles: of a gap and of its entries, of codes
  i64 pairs, width;        // pairs of sequences, columns of a line
  int features, letters, band;
};

enum { COST_ABSOLUTE, COST_SQUARED, COST_EQUAL, COST_TABLE };

// T: the type of costs. ROWS: rows of a lane, at most 8. MANY: more than one feature. WARP: a step
// along one sequence costs what one along both does, else a gap; AFFINE: opening one costs, too.
// LOCAL: an alignment may begin and end anywhere. BANDED: only cells with |i - j| <= band. KEEP: the
// moves are kept, and the path is walked at the end.
template <class T, int COST, int ROWS, bool MANY, bool WARP, bool AFFINE, bool LOCAL, bool BANDED,
          bool KEEP>
struct Alignment {
  static constexpr bool NUMBERS = COST == COST_ABSOLUTE || COST == COST_SQUARED;
  static constexpr int STRIP = 32 * ROWS, CHUNK = 32, LAG = 2;
  using Entry = typename Choose<NUMBERS, T, i32>::Type;

  const AlignParams& p;
  const Entry* x;
  const Entry* y;
  T* line;  // [2][width]
  int rows, columns;
  T open, gap, equal, other;

  SR_FN Alignment(const AlignParams& p, i64 pair) : p(p) {
    x = static_cast<const Entry*>(p.x) + p.x_starts[pair] * p.features;
    y = static_cast<const Entry*>(p.y) + p.y_starts[pair] * p.features;
    rows = int(p.x_starts[pair + 1] - p.x_starts[pair]);
    columns = int(p.y_starts[pair + 1] - p.y_starts[pair]);
    line = static_cast<T*>(p.lines) + blockIdx.x * (AFFINE ? 2 : 1) * p.width;
    open = T(bits_as<double>(p.opening));
    gap = T(bits_as<double>(p.gap));
    equal = T(bits_as<double>(p.equal));
    other = T(bits_as<double>(p.other));
  }

  SR_FN static T far() { return infinity<T>(); }
  SR_FN bool inside(int i, int j) const {
    if constexpr (!BANDED) return true;
    const int apart = i - j;
    return apart <= p.band && -apart <= p.band;
  }
  // Of the cells (0, k) and (k, 0).
  SR_FN T border(int k) const {
    if (!inside(k, 0)) return far();
    if constexpr (LOCAL) return T(0);
    if (k == 0) return T(0);
    if constexpr (WARP) return far();
    const T all = T(k) * gap;
    return AFFINE ? all + open : all;
  }
  SR_FN T cost(Entry a, Entry b) const {
    if constexpr (COST == COST_ABSOLUTE) return sr::abs(a - b);
    else if constexpr (COST == COST_SQUARED) return (a - b) * (a - b);
    else if constexpr (COST == COST_EQUAL) return a == b ? equal : other;
    else return static_cast<const T*>(p.table)[i64(a) * p.letters + b];
  }
  // Of entries by their numbers, over all features in order.
  SR_FN T cost_of(int i, int j) const {
    T total = 0;
    for (int k = 0; k < p.features; ++k)
      total += cost(x[i64(i) * p.features + k], y[i64(j) * p.features + k]);
    return total;
  }

  // What a lane carries along a strip. Rows and columns are counted from 1.
  struct Lane {
    int top;             // the row above the lane's own
    T left[ROWS];        // the column before
    T left_gap[ROWS];    // costs of what ends in a gap along the columns
    T corner;            // (top, column before)
    T last, last_gap;    // of the lowest row: the cost, and that of what ends in a gap along rows
    T best;              // of all cells, with LOCAL
    Entry own[ROWS];
  };

  SR_FN void begin(Lane& lane, int strip, int first, int number) const {
    lane.top = strip + number * ROWS;
    const int before = first - 1;
    lane.corner = before == 0 ? border(lane.top) : number == 0 ? line[before] : far();
    lane.last = lane.last_gap = far();
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int i = lane.top + 1 + r;
      lane.left[r] = before == 0 ? border(i) : far();
      lane.left_gap[r] = far();
      if constexpr (!MANY) lane.own[r] = i <= rows ? x[i - 1] : Entry(0);
    }
  }

  // The cells of a lane in a column, with what is above them.
  SR_FN void column(Lane& lane, int j, Entry entry, T up, T up_gap) const {
    T corner = lane.corner;
    lane.corner = up;
    u32 moves = 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int i = lane.top + 1 + r;
      T step;
      if constexpr (MANY) step = i <= rows ? cost_of(i - 1, j - 1) : T(0);
      else step = cost(lane.own[r], entry);
      const T left = lane.left[r];
      T value, left_gap = far();
      if constexpr (WARP) {
        value = step + min(min(up, left), corner);
        if constexpr (KEEP)
          moves |= (corner <= up && corner <= left ? 0u : up <= left ? 1u : 2u) << 2 * r;
      } else {
        T down = up + gap, along = left + gap;
        if constexpr (AFFINE) {
          down = min(down + open, up_gap + gap);
          along = min(along + open, lane.left_gap[r] + gap);
          up_gap = down;
          left_gap = along;
        }
        value = min(min(down, along), corner + step);
      }
      if constexpr (LOCAL) value = min(value, T(0));
      if (!inside(i, j)) value = up_gap = left_gap = far();
      if constexpr (LOCAL) {
        if (i <= rows) lane.best = min(value, lane.best);
      }
      corner = left;
      lane.left[r] = up = value;
      lane.left_gap[r] = left_gap;
    }
    lane.last = up;
    lane.last_gap = up_gap;
    if constexpr (KEEP) {
      if (lane.top < rows) p.moves[i64(lane.top / ROWS) * p.width + j] = u16(moves);
    }
  }

  // One chunk of steps: lane l is at column `from` + step - l. All lanes of a warp take part.
  SR_FN void chunk(Lane& lane, int strip, int from, int first, int end, int number) const {
    const int ahead = from + number;  // the line's entries come together, and go round
    const bool there = ahead >= first && ahead <= end && inside(strip, ahead);
    const T above = there ? line[ahead] : far();
    const T above_gap = AFFINE && there ? line[p.width + ahead] : far();
    const int before = number ? number - 1 : 0;
    const int start = from - number;
    const auto entry_at = [&](int j) {
      return MANY || j < 1 || j > columns ? Entry(0) : y[j - 1];
    };
    Entry next = entry_at(start);
#pragma unroll 1
    for (int step = 0; step < CHUNK; ++step) {
      const int j = start + step;
      const Entry entry = next;
      next = entry_at(j + 1);  // on its way meanwhile
      T up = shuffle(lane.last, before), up_gap = far();
      const T own = shuffle(above, step);
      if constexpr (AFFINE) {
        const T theirs = shuffle(lane.last_gap, before), mine = shuffle(above_gap, step);
        up_gap = number ? theirs : mine;
      }
      up = number ? up : own;
      if (j < first || j > end) continue;
      column(lane, j, entry, up, up_gap);
      if (number == 31) {
        line[j] = lane.last;
        if constexpr (AFFINE) line[p.width + j] = lane.last_gap;
      }
    }
  }

  // The pair's cost, by thread 0 of the block.
  SR_FN void align(T* result) {
    const int number = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int warps = int(blockDim.x) / 32;
    T* found = shared_memory<T>();  // [warps]
    if (threadIdx.x == 0)
      *found = rows == 0 || columns == 0 ? (LOCAL ? T(0) : border(rows + columns)) : far();
    for (int j = int(threadIdx.x); j <= columns; j += int(blockDim.x)) {
      line[j] = border(j);
      if constexpr (AFFINE) line[p.width + j] = far();
    }
    __syncthreads();  // between the row of borders and what reads it
    Lane lane;
    lane.best = 0;
    for (int base = 0; columns && base < rows; base += warps * STRIP) {
      const int strip = base + warp * STRIP;
      const int first = BANDED ? max(int(1), strip + 1 - p.band) : int(1);
      const int end = BANDED ? min(columns, strip + STRIP + p.band) : columns;
      const bool any = strip < rows && first <= end;
      // of the first and the last warp
      const int lowest = BANDED ? max(int(1), base + 1 - p.band) : int(1);
      const int highest = BANDED ? min(columns, base + warps * STRIP + p.band) : columns;
      const int chunks = (highest + 31) / CHUNK + 1 + LAG * (warps - 1);
      for (int k = lowest / CHUNK; k < chunks; ++k) {
        const int own = k - LAG * warp;
        if (any && own == first / CHUNK) begin(lane, strip, first, number);
        if (any && own >= first / CHUNK && own <= (end + 31) / CHUNK)
          chunk(lane, strip, own * CHUNK, first, end, number);
        __syncthreads();  // what a strip has put into the line is read two chunks later
      }
      if (!LOCAL && any && lane.top < rows && rows <= lane.top + ROWS && inside(rows, columns)) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
          if (lane.top + 1 + r == rows) *found = lane.left[r];
      }
    }
    if constexpr (LOCAL) {
      for (int mask = 16; mask; mask /= 2) lane.best = min(lane.best, shuffle_xor(lane.best, mask));
      if (number == 0) found[warp] = rows && columns ? lane.best : T(0);
    }
    __syncthreads();  // the result is in shared memory, the moves are in the device's
    if (threadIdx.x) return;
    if constexpr (LOCAL)
      for (int w = 1; w < warps; ++w) *found = min(*found, found[w]);
    *result = *found;
    if constexpr (KEEP) walk();
  }

  // From the last cell back.
  SR_FN void walk() const {
    int i = rows, j = columns;
    int count = 0;
    while (i && j) {
      p.path[count] = i - 1;
      p.path[rows + columns + count] = j - 1;
      count += 1;
      const int move = p.moves[i64((i - 1) / ROWS) * p.width + j] >> 2 * int((i - 1) % ROWS) & 3;
      i -= move < 2;
      j -= move != 1;
    }
    *p.steps = count;
  }

  SR_FN static void run(const AlignParams& p) {
    for (i64 pair = blockIdx.x; pair < p.pairs; pair += gridDim.x) {
      Alignment(p, pair).align(static_cast<T*>(p.out) + pair);
      __syncthreads();  // before the line and shared memory are the next pair's
    }
  }
};

}  // namespace sr

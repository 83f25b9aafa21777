// Kernel: the least cost of aligning two sequences, by dynamic programming over the table of all
// pairs of their entries; alignments of many pairs in one launch.
//
// Cell (i, j) needs (i - 1, j), (i, j - 1) and (i - 1, j - 1). A warp has a strip of rows, some rows
// to a lane, and its lanes go along the columns one behind the other: at each step lane l is one
// column behind lane l - 1, which hands over its last row. The warps of a block have strips below
// each other and follow at a distance of two chunks of 32 steps; between them lies a line of memory
// that is always the last row of the lowest strip that has come by. Of few pairs, several blocks
// share one: each has the strips below those of the block before, and waits for it chunk by chunk.
//
// Of costs that fit in 16 bits, a word has those of two pairs, and one instruction computes both. What
// lies beyond the end of the shorter one equals nothing and costs something, so that nothing is better
// for it.
#pragma once
#include "base.cuh"

namespace sr {

// Costs of two pairs, as 16-bit integers: the first pair's in the low half. No sum leaves 16 bits.
struct Couple {
  u32 bits;

  Couple() = default;
  SR_FN explicit Couple(double x) : bits((u32(i32(x)) & 0xffffu) * 0x10001u) {}
  SR_FN static Couple of(u32 bits) {
    Couple x;
    x.bits = bits;
    return x;
  }
};
SR_FN Couple add_min(Couple x, Couple y, Couple z) {
  return Couple::of(add_min_x2(x.bits, y.bits, z.bits));
}
SR_FN Couple min(Couple x, Couple y, Couple z) {
  return Couple::of(min3_x2(x.bits, y.bits, z.bits));
}
SR_FN Couple min(Couple x, Couple y) { return min(x, y, y); }
SR_FN Couple operator+(Couple x, Couple y) { return add_min(x, y, Couple::of(0x7fff7fffu)); }
SR_FN Couple shuffle(Couple x, int lane) { return Couple::of(shuffle(x.bits, lane)); }
SR_FN Couple shuffle_xor(Couple x, int mask) { return Couple::of(shuffle_xor(x.bits, mask)); }
template <>
SR_FN Couple infinity<Couple>() { return Couple::of(0x60006000u); }
template <class T>
SR_FN T add_min(T x, T y, T z) { return min(x + y, z); }
template <class T>
SR_FN T min(T x, T y, T z) { return min(x, min(y, z)); }

// The parameters of a launch; the same fields in the same order in semiring_mm/gpu/wavefront.py.
struct AlignParams {
  const void* x;           // entries of all first sequences
  const void* y;           // of all second ones
  const i64* x_starts;     // [pairs]: the first entry of each, and how many it has
  const i64* y_starts;
  const i64* x_lengths;
  const i64* y_lengths;
  const void* table;       // [letters][letters]: costs of codes; of couples i8[letters][pitch]
  const void* costs;       // of each pair [columns][pitch], for the rows from `first` on: of cells
  const i64* cost_starts;  // [pairs]: the first of its costs
  void* lines;             // [lines][2][width]: costs and, with AFFINE, costs that end in a gap
  void* out;               // [pairs]; of couples floats
  u16* moves;              // [ceil(rows / ROWS)][width]: two bits a row, of the only pair
  i32* path;               // [2][rows + columns], from the last cells back
  i32* steps;              // of the path
  u32* progress;           // [1 + pairs * parts], of zeros: blocks that have begun, chunks that
                           // are done in each part; not used where a pair has one part
  i64 opening, gap, equal, other;  // costs, as doubles: of a gap and of its entries, of codes
  i64 pairs, width;        // pairs of sequences, columns of a line
  int letters, band, parts;  // parts of a pair: the blocks that share it; 1 of a couple
  int first, last;           // rows of this launch; those before `first` are done
  int free;                  // with ENDS: X_START, ...
  int copied;                // whether the table is copied to shared memory
};

// Ends of the sequences that are left out without a cost.
enum { X_START = 1, X_END = 2, Y_START = 4, Y_END = 8 };
constexpr int BEHIND = 0x7ffe;  // the code of a row behind the end, and that of a column less 1
enum { COST_ABSOLUTE, COST_SQUARED, COST_EQUAL, COST_TABLE, COST_GIVEN };
// Words of a column of given costs: whole groups of the most rows of a lane.
SR_FN i64 cost_pitch(int rows) { return i64(rows + 7) / 8 * 8; }

// T: the type of costs. ROWS: rows of a lane, at most 8, of couples 16. WARP: a step along one
// sequence costs what one along both does, else a gap; AFFINE: opening one costs, too. LOCAL: an
// alignment may begin and end anywhere; ENDS: some ends are free. BANDED: only cells with
// |i - j| <= band. KEEP: the moves are kept, and the path is walked at the end.
template <class T, int COST, int ROWS, bool WARP, bool AFFINE, bool LOCAL, bool ENDS, bool BANDED,
          bool KEEP>
struct Alignment {
  static constexpr bool NUMBERS = COST == COST_ABSOLUTE || COST == COST_SQUARED;
  static constexpr bool GIVEN = COST == COST_GIVEN;
  static constexpr bool COUPLES = !Is<T>::floating;
  static constexpr bool TABLE = COST == COST_TABLE, PROFILE = COUPLES && TABLE;
  static constexpr int PAIRS = COUPLES ? 2 : 1;
  static constexpr bool KEPT = sizeof(T) == 4;  // registers for what is needed a column later
  static constexpr bool CORNERS = ENDS || (COUPLES && !LOCAL);  // some cells of a pair count
  static constexpr bool LEAST = LOCAL || CORNERS;  // of several cells, not the last one, counts
  static_assert(!COUPLES || !(NUMBERS || GIVEN || WARP || ENDS || BANDED || KEEP), "costs of codes");
  static constexpr int STRIP = 32 * ROWS, CHUNK = 32, LAG = 2;
  static constexpr u32 DONE = 0x7fffffff;  // chunks: all
  static constexpr int GROUPS = 32, SPAN = 256;  // of a tile of moves: groups of ROWS, columns
  static constexpr int V = ROWS * sizeof(T) > 16 ? 16 / sizeof(T) : ROWS;  // of a vector
  static constexpr int BYTES = ROWS > 8 ? 16 : ROWS > 4 ? 8 : 4;  // of a lane's costs with a letter
  using Entry = typename Choose<NUMBERS, T, i32>::Type;  // of couples two codes, of 16 bits

  const AlignParams& p;
  const Entry* x[PAIRS];  // [PAIRS]
  const Entry* y[PAIRS];  // [PAIRS]
  const T* costs;  // [columns][pitch]
  T* line;  // [2][width]
  const T* table;
  u32* profile;  // of couples, the warp's: [PAIRS][letters + 1][32][BYTES / 4], costs of bytes
  int tall[PAIRS], wide[PAIRS];  // [PAIRS]: rows and columns of each
  int rows, columns, stop;  // of the taller, of the wider; the end of the rows of this launch
  i64 pitch;
  T opening, gap, equal, other;  // opening: with the first of a gap's entries

  SR_FN Alignment(const AlignParams& p, i64 place, i64 number) : p(p) {
    rows = columns = 0;
    for (int h = 0; h < PAIRS; ++h) {
      const i64 pair = min(number * PAIRS + h, p.pairs - 1);  // the last may be there twice
      x[h] = static_cast<const Entry*>(p.x) + p.x_starts[pair];
      y[h] = static_cast<const Entry*>(p.y) + p.y_starts[pair];
      rows = max(rows, tall[h] = int(p.x_lengths[pair]));
      columns = max(columns, wide[h] = int(p.y_lengths[pair]));
    }
    stop = min(rows, p.last);
    costs = GIVEN ? static_cast<const T*>(p.costs) + p.cost_starts[number] : nullptr;
    pitch = cost_pitch(stop - p.first);
    line = static_cast<T*>(p.lines) + place * (AFFINE ? 2 : 1) * p.width;
    table = !COUPLES && p.copied ? beyond_found() : static_cast<const T*>(p.table);
    profile = reinterpret_cast<u32*>(beyond_found()) +
              int(threadIdx.x) / 32 * PAIRS * (p.letters + 1) * 8 * BYTES;
    opening = T(bits_as<double>(p.opening) + bits_as<double>(p.gap));
    gap = T(bits_as<double>(p.gap));
    equal = T(bits_as<double>(p.equal));
    other = T(bits_as<double>(p.other));
  }

  SR_FN static T far() { return infinity<T>(); }
  SR_FN static T* beyond_found() { return shared_memory<T>() + 64 / sizeof(T); }
  SR_FN bool inside(int i, int j) const {
    if constexpr (!BANDED) return true;
    const int apart = i - j;
    return apart <= p.band && -apart <= p.band;
  }
  // Of the cells (0, k) and, whose free end is X_START, (k, 0).
  SR_FN T border(int k, int end) const {
    if (!inside(k, 0)) return far();
    if constexpr (LOCAL) return T(0);
    if (ENDS && (p.free & end)) return T(0);
    if (k == 0) return T(0);
    if constexpr (WARP) return far();
    return T(k * bits_as<double>(p.gap) + (AFFINE ? bits_as<double>(p.opening) : 0));
  }
  // The least of `best` and of a cell at which an alignment may end.
  SR_FN T ending(T best, T value, int i, int j) const {
    if constexpr (COUPLES) {
      const u32 those = (i == tall[0] && j == wide[0] ? 0xffffu : 0u) |
                        (i == tall[1] && j == wide[1] ? 0xffff0000u : 0u);
      return min(best, Couple::of((value.bits & those) | (far().bits & ~those)));
    } else {
      const bool ends = (i == rows && (j == columns || (p.free & Y_END))) ||
                        (j == columns && i < rows && (p.free & X_END));
      return ends ? min(value, best) : best;
    }
  }
  SR_FN T cost(Entry a, Entry b) const {
    if constexpr (COST == COST_ABSOLUTE) return sr::abs(a - b);
    else if constexpr (COST == COST_SQUARED) return (a - b) * (a - b);
    else if constexpr (!COUPLES) return a == b ? equal : other;
    else {
      const u32 apart = min3_x2(u32(a ^ b), 0x10001u, 0x10001u) * 0xffffu;
      return Couple::of((other.bits & apart) | (equal.bits & ~apart));
    }
  }
  // Entry i, from 1 on, of both sequences of a couple; `behind` where one has none.
  SR_FN Entry codes(const Entry* const (&from)[PAIRS], const int (&count)[PAIRS], int i,
                    int behind) const {
    u32 both = 0;
    for (int h = 0; h < PAIRS; ++h)
      both |= u32(i >= 1 && i <= count[h] ? from[h][i - 1] : behind) << 16 * h;
    return Entry(both);
  }
  // The entry of y in column j, as lanes compare it; where y has none, one that is not used.
  SR_FN Entry entry(int j) const {
    if constexpr (COUPLES) return codes(y, wide, j, PROFILE ? p.letters : BEHIND + 1);
    else return !GIVEN && j >= 1 && j <= columns ? y[0][j - 1] : Entry(0);
  }
  // What a lane carries along a strip. Rows and columns are counted from 1.
  struct Lane {
    int top;             // the row above the lane's own
    T left[ROWS];        // the column before
    T left_gap[ROWS];    // costs of what ends in a gap along the columns, and of what opens one
    T left_open[ROWS];   // if KEPT
    T corner;            // (top, column before)
    T last, last_gap;    // of the lowest row: the cost, and that of what ends in a gap along rows
    T best;              // of all cells that count, with LEAST
    Entry own[ROWS];
    Entry entry;         // of y, for the next column
    const T* costs;      // of the first column
  };
  struct Column { T x[ROWS]; };  // [ROWS]
  // Where the profile has the costs of the lane's rows of a pair with a letter.
  SR_FN u32* profiled(int pair, u32 letter) const {
    const int lane = int(threadIdx.x) % 32;
    return profile + ((pair * (p.letters + 1) + int(letter)) * 32 + lane) * (BYTES / 4);
  }
  // Fill it for the lane's own rows; the last letter is what is behind the end.
  SR_FN void fill(const Lane& lane) const {
    const int words = (p.letters + 4) / 4;  // of a row of the table, which has that letter, too
    for (int h = 0; h < PAIRS; ++h)
      for (int r = 0; r < BYTES; r += 4)
        for (int k = 0; k < words; ++k) {
          u32 of[4];  // [4]: of a row each, four letters
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            const u32 both = u32(lane.own[min(r + q, ROWS - 1)]), code = both >> 16 * h & 0xffffu;
            of[q] = int(code) < p.letters
                        ? static_cast<const u32*>(p.table)[int(code) * words + k] : 0x7f7f7f7fu;
          }
          const u32 a = permute_bytes(of[0], of[1], 0x5140u), b = permute_bytes(of[2], of[3], 0x5140u);
          const u32 c = permute_bytes(of[0], of[1], 0x7362u), d = permute_bytes(of[2], of[3], 0x7362u);
          const u32 by[] = {permute_bytes(a, b, 0x5410u), permute_bytes(a, b, 0x7632u),
                            permute_bytes(c, d, 0x5410u), permute_bytes(c, d, 0x7632u)};
#pragma unroll
          for (int q = 0; q < 4; ++q)  // of a letter each, four rows
            if (4 * k + q <= p.letters) profiled(h, u32(4 * k + q))[r / 4] = by[q];
        }
  }
  // The costs of a lane's cells in a column.
  SR_FN Column given(const Lane& lane, int j) const {
    Column found{};
    if constexpr (GIVEN) {
      const T* from = lane.costs + (max(1, min(j, columns)) - 1) * pitch;
#pragma unroll
      for (int r = 0; r < ROWS; r += V) {
        const auto some = *reinterpret_cast<const Pack<T, V>*>(from + r);  // [V]
#pragma unroll
        for (int q = 0; q < V; ++q) found.x[r + q] = some.x[q];
      }
    }
    return found;
  }

  // With TABLE: the costs of a lane's cells in a column of an entry.
  SR_FN Column found(const Lane& lane, Entry entry) const {
    Column costs;
    if constexpr (PROFILE) {
      using Some = Pack<u32, BYTES / 4>;  // [BYTES / 4]
      const Some first = *reinterpret_cast<const Some*>(profiled(0, u32(entry) & 0xffffu));
      const Some second = *reinterpret_cast<const Some*>(profiled(1, u32(entry) >> 16));
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {  // a byte of each with its sign
        const u32 which = 0xc480u + 0x1111u * u32(r % 4);
        costs.x[r] = Couple::of(permute_bytes(first.x[r / 4], second.x[r / 4], which));
      }
    } else {
      const T* from = table + entry;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) costs.x[r] = from[i64(lane.own[r]) * p.letters];
    }
    return costs;
  }

  SR_FN void begin(Lane& lane, int strip, int first, int number) const {
    lane.top = strip + number * ROWS;
    const int before = first - 1;
    lane.corner = before == 0 ? border(lane.top, X_START) : number == 0 ? line[before] : far();
    lane.last = lane.last_gap = far();
    lane.entry = number == 0 ? entry(first / CHUNK * CHUNK) : Entry(0);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int i = lane.top + 1 + r;
      lane.left[r] = before == 0 ? border(i, X_START) : far();
      lane.left_gap[r] = far();
      if constexpr (KEPT) lane.left_open[r] = lane.left[r] + opening;
      if constexpr (COUPLES) lane.own[r] = codes(x, tall, i, BEHIND);
      else if constexpr (!GIVEN) lane.own[r] = i <= rows ? x[0][i - 1] : Entry(0);
    }
    if constexpr (PROFILE) fill(lane);
    lane.costs = costs + min(lane.top - p.first, max(0, int(pitch) - ROWS));  // behind the last any
  }

  // The cells of a lane in a column, with what is above them.
  SR_FN void column(Lane& lane, int j, Entry entry, const Column& steps, T up, T up_gap) const {
    T corner = lane.corner;
    lane.corner = up;
    T up_open = AFFINE ? up + opening : far();
    u32 moves = 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int i = lane.top + 1 + r;
      T step;
      if constexpr (GIVEN || TABLE) step = steps.x[r];
      else step = cost(lane.own[r], entry);
      const T left = lane.left[r];
      T value, left_gap = far();
      if constexpr (WARP) {
        value = step + min(up, min(left, corner));  // only one minimum waits for the row above
        if constexpr (KEEP)
          moves |= (corner <= up && corner <= left ? 0u : up <= left ? 1u : 2u) << 2 * r;
      } else {
        value = LOCAL ? add_min(corner, step, T(0)) : corner + step;
        if constexpr (AFFINE) {
          up_gap = add_min(up_gap, gap, up_open);
          const T opens = KEPT ? lane.left_open[r] : left + opening;
          left_gap = add_min(lane.left_gap[r], gap, opens);
          value = min(up_gap, left_gap, value);
        } else {
          value = add_min(up, gap, add_min(left, gap, value));  // only one waits for the row above
        }
      }
      if (!inside(i, j)) value = up_gap = left_gap = far();
      if constexpr (AFFINE) up_open = value + opening;
      if constexpr (AFFINE && KEPT) lane.left_open[r] = up_open;
      if constexpr (LOCAL && !COUPLES) {
        if (i <= rows) lane.best = min(value, lane.best);
      }
      corner = left;
      lane.left[r] = up = value;
      lane.left_gap[r] = left_gap;
    }
    lane.last = up;
    lane.last_gap = up_gap;
    if constexpr (LOCAL && COUPLES) {
#pragma unroll
      for (int r = 0; r < ROWS; r += 2)
        lane.best = min(lane.best, lane.left[r], lane.left[min(r + 1, ROWS - 1)]);
    }
    if constexpr (CORNERS) {
      if (j == wide[0] || j == wide[PAIRS - 1]) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
          lane.best = ending(lane.best, lane.left[r], lane.top + 1 + r, j);
      } else if (ENDS && (p.free & Y_END)) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
          if (lane.top + 1 + r == rows) lane.best = min(lane.left[r], lane.best);
      }
    }
    if constexpr (KEEP) {
      if (lane.top < rows) p.moves[i64(lane.top / ROWS) * p.width + j] = u16(moves);
    }
  }

  // One chunk of steps: lane l is at column `from` + step - l. All lanes of a warp take part.
  // WHOLE: all of them are inside at all steps, and one column more.
  template <bool WHOLE>
  SR_FN void chunk(Lane& lane, int strip, int from, int first, int end, int number) const {
    const int ahead = from + number;  // the line's entries come together, and go round
    const bool there = ahead >= first && ahead <= end && inside(strip, ahead);
    const T above = there ? line[ahead] : far();
    const T above_gap = AFFINE && there ? line[p.width + ahead] : far();
    const int before = number ? number - 1 : 0;
    const int start = from - number;
    const Entry entries = entry(ahead + 1);  // of y, for the next column of the first lane
    T* below = line + start;
    constexpr int AHEAD = WHOLE && !COUPLES ? 4 : 1;
    Column coming[AHEAD];  // [AHEAD]
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) coming[i] = given(lane, start + i);
    if constexpr (TABLE && KEPT) coming[0] = found(lane, lane.entry);
#pragma unroll 1
    for (int group = 0; group < CHUNK; group += AHEAD)
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const int step = group + i, j = start + step;
        const Entry own_entry = lane.entry;
        Column steps = coming[TABLE ? 0 : i];
        if constexpr (TABLE && !KEPT) steps = found(lane, own_entry);
        if constexpr (GIVEN) {
          coming[i] = given(lane, j + AHEAD);
        } else {  // each lane's is the next one's a column later
          const Entry theirs = shuffle(own_entry, before), mine = shuffle(entries, step);
          lane.entry = number ? theirs : mine;
          if constexpr (TABLE && KEPT) coming[0] = found(lane, lane.entry);
        }
        T up = shuffle(lane.last, before), up_gap = far();
        const T own = shuffle(above, step);
        if constexpr (AFFINE) {
          const T theirs = shuffle(lane.last_gap, before), mine = shuffle(above_gap, step);
          up_gap = number ? theirs : mine;
        }
        up = number ? up : own;
        if (!WHOLE && (j < first || j > end)) continue;
        column(lane, j, own_entry, steps, up, up_gap);
        if (number == 31) {
          below[step] = lane.last;
          if constexpr (AFFINE) below[p.width + step] = lane.last_gap;
        }
      }
  }

  // A part of the pair: the strips of one block, or all of them where there is one part. The cost
  // goes to `result`; `done` has the chunks that each part has done.
  SR_FN void align(i64 pair, int part, u32* done) {
    const int number = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int warps = int(blockDim.x) / 32;
    const bool shared = p.parts > 1;
    const int begin_row = p.first + part * warps * STRIP;
    const int end_row = shared ? min(stop, begin_row + warps * STRIP) : stop;
    if (part && begin_row >= stop) return;
    T* found = shared_memory<T>();  // [warps]
    if (threadIdx.x == 0)
      *found = rows == 0 || columns == 0 ? border(rows + columns, X_START) : far();
    for (int j = int(threadIdx.x); begin_row == 0 && j <= columns; j += int(blockDim.x)) {
      line[j] = border(j, Y_START);
      if constexpr (AFFINE) line[p.width + j] = far();
    }
    __syncthreads();  // between the row of borders and what reads it
    Lane lane;
    lane.best = LOCAL ? T(0) : far();
    if constexpr (CORNERS) {
      for (int h = 0; h < PAIRS; ++h) {
        lane.best = ending(lane.best, border(wide[h], Y_START), 0, wide[h]);
        lane.best = ending(lane.best, border(tall[h], X_START), tall[h], 0);
      }
    }
    for (int base = begin_row; columns && base < end_row; base += warps * STRIP) {
      const int strip = base + warp * STRIP;
      const int first = BANDED ? max(int(1), strip + 1 - p.band) : int(1);
      const int end = BANDED ? min(columns, strip + STRIP + p.band) : columns;
      const bool any = strip < stop && first <= end;
      // of the first and the last warp
      const int lowest = BANDED ? max(int(1), base + 1 - p.band) : int(1);
      const int highest = BANDED ? min(columns, base + warps * STRIP + p.band) : columns;
      const int behind = LAG * (warps - 1), chunks = (highest + 31) / CHUNK + 1 + behind;
      for (int k = lowest / CHUNK; k < chunks; ++k) {
        if (shared) {
          if (part && threadIdx.x == 0) wait_for(done + part - 1, u32(k + LAG));
          if (threadIdx.x == blockDim.x - 1 && k > behind) tell(done + part, u32(k - behind));
          __syncthreads();  // between the wait and what reads the line of the part above
        }
        const int own = k - LAG * warp;
        if (any && own == first / CHUNK) begin(lane, strip, first, number);
        const int from = own * CHUNK;
        if (any && from - 31 >= first && from + 31 < end)
          chunk<true>(lane, strip, from, first, end, number);
        else if (any && own >= first / CHUNK && own <= (end + 31) / CHUNK)
          chunk<false>(lane, strip, from, first, end, number);
        __syncthreads();  // what a strip has put into the line is read two chunks later
      }
      if (!LEAST && any && lane.top < rows && rows <= lane.top + ROWS && inside(rows, columns)) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
          if (lane.top + 1 + r == rows) *found = lane.left[r];
      }
    }
    if constexpr (LEAST) {
      for (int mask = 16; mask; mask /= 2) lane.best = min(lane.best, shuffle_xor(lane.best, mask));
      if (number == 0) found[warp] = lane.best;
    }
    if (part && threadIdx.x == 0) wait_for(done + part - 1, DONE);  // whose result or moves we read
    __syncthreads();  // the result is in shared memory, the moves are in the device's
    if (threadIdx.x == 0) {
      if constexpr (LEAST) {
        for (int w = 1; w < warps; ++w) *found = min(*found, found[w]);
      }
      T* result = static_cast<T*>(p.out) + pair;
      if constexpr (COUPLES) {
        float* both = static_cast<float*>(p.out);  // [pairs]
        for (int h = 0; h < PAIRS && 2 * pair + h < p.pairs; ++h)
          both[2 * pair + h] = float(i16(found->bits >> 16 * h & 0xffffu));
      } else if (LEAST) {
        *result = part ? min(*found, *result) : *found;
      } else if (end_row == rows) {
        *result = *found;
      }
      if (shared) tell(done + part, DONE);
    }
    if constexpr (KEEP) {
      if (end_row == rows) walk();
    }
  }

  // What the block stored before its last barrier is there for a block that waits for the word.
  SR_FN static void tell(u32* word, u32 chunks) {
    memory_fence();
    store_current(word, chunks);
  }

  // From the last cell back, by all threads: a tile of moves at a time is in shared memory, where
  // thread 0 goes through it.
  SR_FN void walk() const {
    i32* at = shared_memory<i32>() + 16;         // [2]: row and column
    u16* near = reinterpret_cast<u16*>(at + 2);  // [GROUPS][SPAN]
    i32* path = p.path;  // [2][most]
    const int most = rows + columns;
    int i = rows, j = columns, count = 0;
    while (i && j) {
      const int group = max(0, (i - 1) / ROWS - (GROUPS - 1)), first = max(1, j - (SPAN - 1));
      __syncthreads();  // between reading the place and the last tile, and overwriting them
#pragma unroll 8
      for (int k = int(threadIdx.x); k < GROUPS * SPAN; k += int(blockDim.x)) {
        const int row = group + k / SPAN, column = first + k % SPAN;
        near[k] = row <= (i - 1) / ROWS && column <= j ? p.moves[i64(row) * p.width + column] : u16(0);
      }
      __syncthreads();  // between storing the tile and reading it
      if (threadIdx.x == 0) {
        int row = i - 1 - group * ROWS, column = j - first;
        for (; row >= 0 && column >= 0; ++count) {
          path[count] = group * ROWS + row;
          path[most + count] = first - 1 + column;
          const int move = near[row / ROWS * SPAN + column] >> 2 * (row % ROWS) & 3;
          row -= move < 2;
          column -= move != 1;
        }
        at[0] = group * ROWS + row + 1;
        at[1] = first + column;
      }
      __syncthreads();  // between storing the place and reading it
      i = at[0];
      j = at[1];
    }
    if (threadIdx.x == 0) *p.steps = count;
  }

  SR_FN static void run(const AlignParams& p) {
    i64 pair = blockIdx.x, step = gridDim.x, place = blockIdx.x;
    int part = 0;
    if (p.parts > 1) {  // in the order in which blocks begin, so that what is waited for has begun
      u32* turn = shared_memory<u32>();
      if (threadIdx.x == 0) *turn = fetch_add(p.progress, 1u);
      __syncthreads();  // between storing the turn and reading it
      place = pair = *turn / u32(p.parts);
      part = int(*turn % u32(p.parts));
      step = p.pairs;
      __syncthreads();  // between reading the turn and overwriting it
    }
    if (TABLE && !COUPLES && p.copied) {
      for (int i = int(threadIdx.x); i < p.letters * p.letters; i += int(blockDim.x))
        beyond_found()[i] = static_cast<const T*>(p.table)[i];
      __syncthreads();  // between copying the table and reading it
    }
    // all have read the line at the barrier before the result
    for (; pair * PAIRS < p.pairs; pair += step)
      Alignment(p, place, pair).align(pair, part, p.progress + 1 + pair * p.parts);
  }
};

// Kernel: edit distances of many pairs, a thread for each, by bits (as cpu/kernels/alignment.py has
// them). The sequences of x have at most as many entries as a word has bits.
template <class Word, int THREADS>
struct Edits {
  SR_FN static void run(const AlignParams& p) {
    i32* own = shared_memory<i32>() + threadIdx.x;  // [entries][THREADS]: those of x
    const i64 step = i64(gridDim.x) * THREADS;
    for (i64 pair = i64(blockIdx.x) * THREADS + threadIdx.x; pair < p.pairs; pair += step) {
      const i32* x = static_cast<const i32*>(p.x) + p.x_starts[pair];
      const i32* y = static_cast<const i32*>(p.y) + p.y_starts[pair];
      const int rows = int(p.x_lengths[pair]), columns = int(p.y_lengths[pair]);
      for (int i = 0; i < rows; ++i) own[i * THREADS] = x[i];
      Word up = ~Word(0), down = 0;  // which cells of a column are one more, and one less, than above
      for (int j = 0; j < columns; ++j) {
        const i32 code = y[j];
        Word same = 0;
        for (int i = rows - 1; i >= 0; --i) same = same << 1 | Word(own[i * THREADS] == code);
        const Word equal = (((same & up) + up) ^ up) | same | down;
        const Word above = down | ~(equal | up), below = equal & up;
        const Word across = above << 1 | 1;
        up = below << 1 | ~(equal | across);
        down = across & equal;
      }
      const Word all = rows < 8 * int(sizeof(Word)) ? (Word(1) << rows) - 1 : ~Word(0);
      static_cast<float*>(p.out)[pair] = float(columns + count(up & all) - count(down & all));
    }
  }
  SR_FN static int count(u64 x) { return popcount(u32(x)) + popcount(u32(x >> 32)); }
};

}  // namespace sr

// Instead of storing a tile of distances, appends the entries that come before the last of their
// row's list to the row's candidates (gpu/select.py: Sieve).
#pragma once
#include "schedule.cuh"
#include "steps.cuh"
#include "tile.cuh"

namespace sr {

// A and B may have some more rows and columns than there are, so that vectors fill them.
struct SieveParams : ProductParams {
  const void* value;  // [rows][list] of Storage: ascending lists ...
  const i64* index;   // ... and the numbers of their columns
  const u32* order;   // [columns]: the number of each
  u32* count;         // [rows]: += the candidates
  u32* candidates;    // [rows][capacity]: the columns of the first `capacity` of these, ...
  void* kept;         // ... and their values, of Storage
  i64 capacity;
  int rows, columns, list;
};

// In the place of Epilogue.
template <class Step, class Tile>
struct Sieve {
  using Params = SieveParams;
  using A = typename Step::Algebra;
  using Word = typename Step::Word;
  using Storage = typename A::Storage;
  static constexpr int TM = Tile::TM, TN = Tile::TN;
  static_assert(Step::COLUMNS == 1, "a word is a distance");

  SR_FN static void store(const SieveParams& p, const Word (&acc)[TM][TN], const WorkTile&,
                          const TileCoord<Step, Tile>& at) {
    Storage limit[TM];  // [TM]
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      const int row = at.row + Tile::row(i);
      limit[i] = static_cast<const Storage*>(p.value)[end_of(p, row < p.rows ? row : 0)];
    }
    u32 hits[TM], place[TM];  // [TM]: columns that are kept, and after how many candidates
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      const int row = at.row + Tile::row(i);
      bool beyond = true;  // all; NaN is not, nor is anything beyond NaN
#pragma unroll
      for (int j = 0; j < TN; ++j) beyond &= distance(acc[i][j]) > limit[i];
      hits[i] = beyond || row >= p.rows ? 0 : before(p, acc[i], limit[i], row, at.column);
    }
#pragma unroll
    for (int i = 0; i < TM; ++i)  // all at once, and then all are waited for
      if (hits[i]) place[i] = fetch_add(p.count + at.row + Tile::row(i), u32(popcount(hits[i])));
#pragma unroll
    for (int i = 0; i < TM; ++i)
      if (hits[i]) keep(p, acc[i], hits[i], place[i], at.row + Tile::row(i), at.column);
  }

  SR_FN static i64 end_of(const SieveParams& p, int row) { return i64(row) * p.list + p.list - 1; }
  SR_FN static Storage distance(Word x) { return A::encode(Step::out(x, 0)); }

  // Bit j: accumulator j is before the last entry, whose value is `limit`.
  SR_FN static u32 before(const SieveParams& p, const Word (&acc)[TN], Storage limit, int row,
                          int first) {
    const bool open = limit != limit;  // numbers are before NaN
    u32 hits = 0, even = 0;            // less than the limit; the same
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const Storage x = distance(acc[j]);
      const bool inside = first + Tile::column(j) < p.columns;
      hits |= u32(inside && (open ? x == x : x < limit)) << j;
      even |= u32(inside && (open ? x != x : x == limit)) << j;
    }
    if (even) {  // the lower number is before
      const i64 number = p.index[end_of(p, row)];
#pragma unroll 1
      for (int j = 0; j < TN; ++j)
        if (even >> j & 1) hits |= u32(i64(p.order[first + Tile::column(j)]) < number) << j;
    }
    return hits;
  }

  SR_FN static void keep(const SieveParams& p, const Word (&acc)[TN], u32 hits, i64 place, int row,
                         int first) {
    Storage found[TN];  // [TN], in local memory: a loop over registers would be unrolled
#pragma unroll
    for (int j = 0; j < TN; ++j) found[j] = distance(acc[j]);
#pragma unroll 1
    for (; hits && place < p.capacity; hits &= hits - 1, ++place) {
      const int j = popcount(~hits & (hits - 1));
      const i64 to = row * p.capacity + place;
      p.candidates[to] = u32(first + Tile::column(j));
      static_cast<Storage*>(p.kept)[to] = found[j];
    }
  }
};

}  // namespace sr

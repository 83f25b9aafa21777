// What becomes of a tile of distances that are not stored: those that are before the last entry of
// their row's list are appended to the row's candidates (gpu/select.py: Sieve).
#pragma once
#include "schedule.cuh"
#include "select.cuh"
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
  using Order = OrderKey<Storage>;
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
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      const int row = at.row + Tile::row(i);
      bool beyond = true;  // all; NaN is not, nor is anything beyond NaN
#pragma unroll
      for (int j = 0; j < TN; ++j) beyond &= distance(acc[i][j]) > limit[i];
      if (!beyond && row < p.rows) keep(p, acc[i], limit[i], row, at.column);
    }
  }

  SR_FN static i64 end_of(const SieveParams& p, int row) { return i64(row) * p.list + p.list - 1; }
  SR_FN static Storage distance(Word x) { return A::encode(Step::out(x, 0)); }

  SR_FN static void keep(const SieveParams& p, const Word (&acc)[TN], Storage limit, int row,
                         int first) {
    const auto last = Order::of(limit);
    Storage found[TN];   // [TN], in local memory: loops over registers would be unrolled
    u32 hits = 0, even = 0;  // bit j: it is before the last entry; it has the same value
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      found[j] = distance(acc[j]);
      const auto key = Order::of(found[j]);
      const u32 inside = first + Tile::column(j) < p.columns;
      hits |= (inside & u32(key < last)) << j;
      even |= (inside & u32(key == last)) << j;
    }
    if (even) {  // the lower number is before
      const i64 number = p.index[end_of(p, row)];
#pragma unroll 1
      for (int j = 0; j < TN; ++j)
        if (even >> j & 1) hits |= u32(i64(p.order[first + Tile::column(j)]) < number) << j;
    }
    if (!hits) return;
    i64 place = fetch_add(p.count + row, u32(popcount(hits)));
#pragma unroll 1
    for (; hits; hits &= hits - 1) {
      const int j = popcount(~hits & (hits - 1));
      if (place < p.capacity) {
        const i64 to = row * p.capacity + place;
        p.candidates[to] = u32(first + Tile::column(j));
        static_cast<Storage*>(p.kept)[to] = found[j];
      }
      ++place;
    }
  }
};

}  // namespace sr

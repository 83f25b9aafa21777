// Kernel: the costs of all pairs of entries of two sequences, of many features, as a product; of
// many pairs of sequences in one launch. wavefront.cuh reads them.
#pragma once
#include "pipeline.cuh"
#include "wavefront.cuh"

namespace sr {

// The parameters of a launch; the same fields in the same order in semiring_mm/gpu/wavefront.py.
struct CostParams {
  const void* x;         // entries of all first sequences: [all][features]
  const void* y;         // of all second ones
  const i64* x_starts;   // [pairs]: the first entry of each, and how many it has
  const i64* y_starts;
  const i64* x_lengths;
  const i64* y_lengths;
  const i64* tiles;      // [pairs + 1]: the first tile of each pair
  const i64* starts;     // [pairs]: the first of its costs
  void* costs;           // of each pair [columns][cost_pitch]
  int features, pairs, band, first, unit;  // first: the number of the first row
};

// VECTOR: four features are contiguous and aligned. BANDED: only tiles with |i - j| <= band.
template <class Step, class Tile, bool VECTOR, bool BANDED>
struct Costs {
  using Word = typename Step::Word;
  using Loads = Stage<Step, Tile, true, VECTOR, true, VECTOR>;
  static constexpr int BYTES = 2 * Loads::WORDS * int(sizeof(Word));
  static constexpr int VN = Tile::VN * sizeof(Word) > 16 ? 16 / sizeof(Word) : Tile::VN;

  SR_FN static void run(const CostParams& p) {
    int pair = 0;
    for (int end = p.pairs; end - pair > 1;) {
      const int middle = (pair + end) / 2;
      if (p.tiles[middle] <= i64(blockIdx.x)) pair = middle;
      else end = middle;
    }
    const int rows = int(p.x_lengths[pair]), columns = int(p.y_lengths[pair]);
    const int tile = int(i64(blockIdx.x) - p.tiles[pair]), across = (rows + Tile::BN - 1) / Tile::BN;
    const int i = tile % across * Tile::BN, j = tile / across * Tile::BM;
    if constexpr (BANDED) {
      const int apart = p.first + i - j;  // of the first cell; the others differ by a side
      if (apart - (Tile::BM - 1) > p.band || -apart - (Tile::BN - 1) > p.band) return;
    }
    typename Loads::Left left;
    typename Loads::Right right;
    left.start(static_cast<const Word*>(p.y) + (p.y_starts[pair] + j) * p.features, p.features, 1,
               columns - j);
    right.start(static_cast<const Word*>(p.x) + (p.x_starts[pair] + i) * p.features, p.features, 1,
                rows - i);
    Multiplier<Step, Tile> block;
    block.clear();
    Word* shared = shared_memory<Word>();  // [2] of [BK][BM + PAD] and [BK][BN + PAD]
    if (p.features > 0) Loads::fetch(left, right, shared, min(Tile::BK, p.features));
#pragma unroll 1
    for (int rest = p.features, now = 0; rest > 0; rest -= Tile::BK, now = Loads::WORDS - now) {
      Loads::commit(left, right, shared + now);
      __syncthreads();  // between storing this tile and reading it; reading the last, overwriting it
      const int more = rest - Tile::BK;
      if (more > 0) Loads::fetch(left, right, shared + Loads::WORDS - now, min(Tile::BK, more));
      const Word* as = shared + now + Tile::row(0);
      const Word* bs = shared + now + Loads::B + Tile::column(0);
#pragma unroll 4
      for (int k = 0; k < min(Tile::BK, rest); ++k) {
        Fragment<Step, Tile, 1> fragment;
        Loads::load_fragment(fragment, as, bs, k);
        block.take(fragment, p.unit);
      }
    }
    const i64 pitch = cost_pitch(rows);
    Word* costs = static_cast<Word*>(p.costs) + p.starts[pair];
#pragma unroll
    for (int r = 0; r < Tile::TM; ++r)
#pragma unroll
      for (int c = 0; c < Tile::TN; c += VN) {
        const int column = j + Tile::row(r), row = i + Tile::column(c);
        if (column >= columns || row >= pitch) continue;
        Pack<Word, VN> some;  // [VN]
#pragma unroll
        for (int q = 0; q < VN; ++q) some.x[q] = block.acc[r][c + q];
        *reinterpret_cast<Pack<Word, VN>*>(costs + column * pitch + row) = some;
      }
  }
};

}  // namespace sr

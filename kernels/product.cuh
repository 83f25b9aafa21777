// Kernel: the product C <- (α ⊗ A ⊗ B) ⊕ (β ⊗ C). A block for each work tile; the parts are those
// of the headers included here, put together.
#pragma once
#include "arg.cuh"
#include "epilogue.cuh"
#include "pipeline.cuh"

namespace sr {

template <class Step, class Tile, bool A_K_MAJOR, bool A_VECTOR, bool B_K_MAJOR, bool B_VECTOR,
          bool C_VECTOR, bool ARG>
struct Product {
  using Word = typename Step::Word;
  using Loads = Stage<Step, Tile, A_K_MAJOR, A_VECTOR, B_K_MAJOR, B_VECTOR>;
  using Pipeline = TwoStage<Loads>;
  static constexpr int BYTES = Pipeline::STAGES * Loads::WORDS * int(sizeof(Word));

  SR_FN static void run(const ProductParams& p) {
    if (!is_selected(p)) return;
    const WorkTile work(p);
    const TileCoord<Step, Tile> at(p, work.tile);
    if (p.triangle && at.below_diagonal(p.triangle)) return;
    Word* shared = shared_memory<Word>();  // [2] of [BK][BM + PAD] and [BK][BN + PAD]
    typename Loads::Left left;
    typename Loads::Right right;
    Loads::start(left, right, p, at, work.k);
    Multiplier<Step, Tile> block;
    block.clear();
    BestTiles<Step, Tile, ARG> best;
    best.start(p, block.acc, at);
    Pipeline::run(left, right, block, best, shared, work.depth, p.unit);
    best.store(p, block.acc, at);
    Epilogue<Step, Tile, C_VECTOR>::store(p, block.acc, work, at);
  }
};

}  // namespace sr

// Kernel: the product C <- (α ⊗ A ⊗ B) ⊕ (β ⊗ C). A block for each work tile. README.md draws the
// timeline of the main loop.
//
// Schedule, main loop and remainder stand in one function, and loaders and fragments are its local
// variables: split into functions, the same instructions get other registers.
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
  using Left = typename Loads::Left;
  using Right = typename Loads::Right;
  static constexpr int STAGES = 2, WORDS = Loads::WORDS;  // of a stage
  static constexpr int BYTES = STAGES * WORDS * int(sizeof(Word));
  static constexpr int K_STEPS = Tile::BK / Step::DEPTH;  // of a tile
  // k steps in the body of the inner loop: more of them would not fit the instruction cache.
  static constexpr int MAX_UNROLL = Step::SHORT ? 8 : 4;
  static constexpr int UNROLL = K_STEPS < MAX_UNROLL ? K_STEPS : MAX_UNROLL;
  static_assert(Tile::BK % Step::DEPTH == 0, "k steps fill a tile");
  static_assert(UNROLL % 2 == 0, "fragments alternate between two sets of registers");
  static_assert(K_STEPS % UNROLL == 0, "the unrolled body fills a tile");
  // Whether the next tile is fetched after the first k step, when the arithmetic is under way, or
  // before it. After it is faster, unless the branch is evaluated in vain many times (measured).
  static constexpr bool FETCH_LATE = UNROLL > 2 && K_STEPS <= 2 * UNROLL;

  SR_FN static void run(const ProductParams& p) {
    // --- schedule
    if (!is_selected(p)) return;
    const WorkTile work(p);
    const TileCoord<Step, Tile> at(p, work.tile);
    if (p.triangle && at.below_diagonal(p.triangle)) return;
    Word* shared = shared_memory<Word>();  // [STAGES] of [BK][BM + PAD] and [BK][BN + PAD]
    Left left;
    Right right;
    Loads::start(left, right, p, at, work.k);
    Multiplier<Step, Tile> block;
    block.clear();
    BestTiles<Step, Tile, ARG> best;
    best.start(p, block.acc, at);
    const Word* as = shared + Left::at(Tile::row(0));  // this thread's words of stage 0
    const Word* bs = shared + Loads::B + Right::at(Tile::column(0));
    const int tiles = work.depth / Tile::BK;  // whole tiles of k

    // --- main loop: while tile t is multiplied, tile t + 1 is loaded
    if (tiles > 0) {
      Loads::fetch(left, right, shared);
      Loads::commit(left, right, shared);
      __syncthreads();  // between stores of tile 0 and reads of it
      Fragment<Step, Tile, Step::DEPTH> fragment[2];  // [2]: of this k step and of the next
      Loads::load_fragment(fragment[0], as, bs, 0);
#pragma unroll 1
      for (int t = 0; t < tiles; ++t) {
        const int now = t % 2 * WORDS, next = WORDS - now;  // stages of tiles t and t + 1
        const bool more = t + 1 < tiles;
        if (!FETCH_LATE && more) Loads::fetch(left, right, shared + next);
        best.before_tile(block.acc);
        const Word* a_now = as + now;  // of the next UNROLL k steps
        const Word* b_now = bs + now;
#pragma unroll 1
        for (int part = 0; part < K_STEPS / UNROLL; ++part) {
#pragma unroll
          for (int s = 0; s < UNROLL; ++s) {
            if (FETCH_LATE && s == 1 && part == 0 && more) Loads::fetch(left, right, shared + next);
            if (s + 1 == UNROLL) {  // the next fragment is of the next part, or of the next tile
              const bool last = part + 1 == K_STEPS / UNROLL;
              a_now += UNROLL * Step::DEPTH * Left::LD;
              b_now += UNROLL * Step::DEPTH * Right::LD;
              if (last && more) {  // hidden by the arithmetic of this k step
                Loads::commit(left, right, shared + next);
                __syncthreads();  // between reads of t and overwriting it; stores, reads of t + 1
              }
              if (last) {  // last tile: prefetch any valid address
                a_now = as + (more ? next : now);
                b_now = bs + (more ? next : now);
              }
            }
            const int ahead = (s + 1) % UNROLL * Step::DEPTH;
            Loads::load_fragment(fragment[(s + 1) % 2], a_now, b_now, ahead);
            block.take(fragment[s % 2], p.unit);
          }
        }
        best.after_tile(block.acc, t);
      }
    }

    // --- remainder: the last steps of k, one by one; they are few
    if (const int rest = work.depth - tiles * Tile::BK) {
      const int now = tiles % 2 * WORDS;  // the stage that the last tile is not in
      Loads::fetch(left, right, shared + now, rest);
      Loads::commit(left, right, shared + now);
      __syncthreads();  // between stores of the rest and reads of it
      best.before_tile(block.acc);
#pragma unroll 1
      for (int k = 0; k < rest; ++k) {
        Fragment<Step, Tile, 1> fragment;
        Loads::load_fragment(fragment, as + now, bs + now, k);
        block.take(fragment, p.unit);
      }
      best.after_tile(block.acc, tiles);
    }

    // --- epilogue
    best.store(p, block.acc, at);
    Epilogue<Step, Tile, C_VECTOR>::store(p, block.acc, work, at);
  }
};

}  // namespace sr

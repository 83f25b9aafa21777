// Kernel: the product C <- (α ⊗ A ⊗ B) ⊕ (β ⊗ C). A block for each work tile. CLUSTER: the blocks
// of a tile whose k is split are a cluster. Store: what becomes of a tile of C (Epilogue, Sieve).
// README.md draws the timeline of the main loop.
//
// Schedule, main loop and remainder stand in one function, and loaders and fragments are its local
// variables: split into functions, the same instructions get other registers.
#pragma once
#include "arg.cuh"
#include "epilogue.cuh"
#include "pipeline.cuh"

namespace sr {

template <class Step, class Tile, bool A_K_MAJOR, bool A_VECTOR, bool B_K_MAJOR, bool B_VECTOR,
          class Store, bool ARG, bool CLUSTER = false>
struct Product {
  using Word = typename Step::Word;
  using Loads = Stage<Step, Tile, A_K_MAJOR, A_VECTOR, B_K_MAJOR, B_VECTOR>;
  using Left = typename Loads::Left;
  using Right = typename Loads::Right;
  static constexpr int STAGES = Tile::STAGES, WORDS = Loads::WORDS;  // of a stage
  static constexpr int RESULT = CLUSTER ? Tile::BM * Tile::BN : 0;  // words that a cluster joins
  static constexpr int BYTES =
      (STAGES * WORDS > RESULT ? STAGES * WORDS : RESULT) * int(sizeof(Word));
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
  static constexpr bool AHEAD = Loads::AHEAD;  // without a branch
  static_assert(!AHEAD || K_STEPS == UNROLL, "nor is one around it");

  SR_FN static void run(const typename Store::Params& p) {
    // --- schedule
    if (!is_selected(p)) return;
    const WorkTile work(p, int(blockIdx.x), CLUSTER);
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

    // --- main loop: while tile t is multiplied, tiles to t + STAGES - 1 are loaded
    if (tiles > 0) {
#pragma unroll
      for (int t = 0; t < STAGES - 1; ++t) fetch(left, right, shared + t * WORDS, t < tiles);
      Loads::store(left, right, shared);
      copy_wait<STAGES - 2>();
      __syncthreads();  // between stores of tile 0 and reads of it
      Fragment<Step, Tile, Step::DEPTH> fragment[2];  // [2]: of this k step and of the next
      Loads::load_fragment(fragment[0], as, bs, 0);
#pragma unroll 1
      for (int t = 0; t < tiles; ++t) {
        // stages of tiles t, t + 1 and t + STAGES - 1
        const int now = t % STAGES * WORDS, next = (t + 1) % STAGES * WORDS,
                  last = (t + STAGES - 1) % STAGES * WORDS;
        const bool follows = t + 1 < tiles, more = t + STAGES - 1 < tiles;
        if (!FETCH_LATE) fetch(left, right, shared + last, more);
        best.before_tile(block.acc);
        const Word* a_now = as + now;  // of the next UNROLL k steps
        const Word* b_now = bs + now;
#pragma unroll 1
        for (int part = 0; part < K_STEPS / UNROLL; ++part) {
#pragma unroll
          for (int s = 0; s < UNROLL; ++s) {
            if (FETCH_LATE && s == 1 && part == 0) fetch(left, right, shared + last, more);
            if (s + 1 == UNROLL) {  // the next fragment is of the next part, or of the next tile
              const bool ends = part + 1 == K_STEPS / UNROLL;
              a_now += UNROLL * Step::DEPTH * Left::LD;
              b_now += UNROLL * Step::DEPTH * Right::LD;
              if (ends && (follows || AHEAD)) {  // hidden by the arithmetic of this k step
                Loads::store(left, right, shared + last);
                copy_wait<STAGES - 2>();
                __syncthreads();  // between reads of t and overwriting it; stores, reads of t + 1
              }
              if (ends) {  // last tile: prefetch any valid address
                a_now = as + (follows ? next : now);
                b_now = bs + (follows ? next : now);
              }
            }
            const int ahead = (s + 1) % UNROLL * Step::DEPTH;
            Loads::load_fragment(fragment[(s + 1) % 2], a_now, b_now, ahead);
            block.take(fragment[s % 2], p.unit);
          }
        }
        best.after_tile(block.acc, t);
      }
      if constexpr (AHEAD) copy_wait<0>();  // zeros, before anything else is stored there
    }

    // --- remainder: the last steps of k, one by one; they are few
    if (const int rest = work.depth - tiles * Tile::BK) {
      const int now = tiles % STAGES * WORDS;  // a stage that the last tile is not in
      if (AHEAD) Loads::start(left, right, p, at, work.k + tiles * Tile::BK);
      Loads::fetch(left, right, shared + now, rest);
      Loads::commit(left, right, shared + now);
      __syncthreads();  // between stores of the rest and reads of it
      best.before_tile(block.acc);
#pragma unroll 1
      for (int k = 0; k < rest; k += Rest<Step>::STEPS) {
        Fragment<Step, Tile, Rest<Step>::STEPS> fragment;
        Loads::load_fragment(fragment, as + now, bs + now, k);
        block.take(fragment, p.unit);
      }
      best.after_tile(block.acc, tiles);
    }

    // --- epilogue
    block.finish(p.unit);
    best.store(p, block.acc, at);
    if constexpr (CLUSTER) {
      __syncthreads();  // between reads of the last stages and overwriting them
      Store::store_cluster(p, block.acc, shared, at);
    } else {
      Store::store(p, block.acc, work, at);
    }
  }

  // The next tile of k, if it is `active`.
  SR_FN static void fetch(Left& left, Right& right, Word* stage, bool active) {
    if constexpr (AHEAD) Loads::fetch_ahead(left, right, stage, active);
    else if (active) Loads::fetch(left, right, stage);
  }
};

}  // namespace sr

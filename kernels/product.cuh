// The product C <- (α ⊗ A ⊗ B) ⊕ (β ⊗ C): one block for each tile of C, or a part of k.
#pragma once
#include "epilogue.cuh"
#include "loader.cuh"
#include "multiplier.cuh"

namespace sr {

template <class Step, class Tile, bool A_K_UNIT, bool A_WIDE, bool B_K_UNIT, bool B_WIDE,
          bool C_WIDE, bool ARG>
struct Product {
  using Word = typename Step::Word;
  using Left = Loader<Step, true, Tile, A_K_UNIT, A_WIDE>;
  using Right = Loader<Step, false, Tile, B_K_UNIT, B_WIDE>;
  static constexpr int WORDS = Left::WORDS + Right::WORDS;  // of one of the two stages
  static constexpr int BYTES = 2 * WORDS * int(sizeof(Word));
  static constexpr int TURNS = Tile::BK / Step::DEPTH;
  // Turns in the body of the inner loop: more of them would not fit the instruction cache.
  static constexpr int MOST = Step::SHORT ? 8 : 4, UNROLL = TURNS < MOST ? TURNS : MOST;
  static_assert(UNROLL % 2 == 0 && TURNS % UNROLL == 0, "fragments take turns in two sets");
  // Whether the next tile is asked for after the first turn, when the arithmetic is under way, or
  // before it: the first is faster where the branch is not taken many times in vain (measured).
  static constexpr bool LATE = UNROLL > 2 && TURNS <= 2 * UNROLL;
  static_assert(!ARG || Step::COLUMNS == 1, "a k for each accumulator");

  SR_FN static void run(const ProductParams& p) {
    if (!is_called(p)) return;
    const Share share(p);
    const Place<Step, Tile> at(p, share.tile);
    if (p.triangle && at.row - at.row % p.triangle >= at.column + Tile::BN * Step::COLUMNS) return;
    Word* shared = shared_memory<Word>();  // [2] of [BK][BM + PAD] and [BK][BN + PAD]
    const int b0 = at.column / Step::COLUMNS * Step::ELEMENTS;
    const int b_columns = (p.n * Step::ELEMENTS + Step::COLUMNS - 1) / Step::COLUMNS;
    Left left;
    left.start(static_cast<const typename Left::Element*>(p.a) + at.batch * p.a_batch +
                   at.row * p.a_m + share.k * p.a_k, p.a_m, p.a_k, p.m - at.row);
    Right right;
    right.start(static_cast<const typename Right::Element*>(p.b) + at.batch * p.b_batch +
                    b0 * p.b_n + share.k * p.b_k, p.b_n, p.b_k, b_columns - b0);

    Multiplier<Step, Tile> block;
    block.clear();
    Marks<Step, Tile, ARG> marks;
    marks.start(p, block.acc, at);
    const Word* as = shared + Tile::row(0);
    const Word* bs = shared + Left::WORDS + Tile::column(0);
    const int whole = share.depth / Tile::BK;  // tiles; what is left over comes last

    if (whole > 0) {
      fetch(left, right, shared, Tile::BK);
      commit(left, right, shared);
      __syncthreads();  // tile 0 is there
      Fragment<Step, Tile, Step::DEPTH> fragment[2];
      fragment[0].template load<Left::LD, Right::LD>(as, bs, 0);
#pragma unroll 1
      for (int t = 0; t < whole; ++t) {
        const int now = t % 2 * WORDS, next = WORDS - now;
        const bool more = t + 1 < whole;
        if (!LATE && more) fetch(left, right, shared + next, Tile::BK);
        marks.before(block.acc);
        const Word* a_now = as + now;
        const Word* b_now = bs + now;
#pragma unroll 1
        for (int part = 0; part < TURNS / UNROLL; ++part) {
#pragma unroll
          for (int turn = 0; turn < UNROLL; ++turn) {
            if (LATE && turn == 1 && part == 0 && more)
              fetch(left, right, shared + next, Tile::BK);
            if (turn + 1 == UNROLL) {  // the last turn's arithmetic hides the change of tiles
              const bool last = part + 1 == TURNS / UNROLL;
              a_now += UNROLL * Step::DEPTH * Left::LD;
              b_now += UNROLL * Step::DEPTH * Right::LD;
              if (last && more) {
                commit(left, right, shared + next);
                __syncthreads();  // tile t is in registers, tile t + 1 is there
              }
              if (last) {  // without a next tile, anything that is there
                a_now = as + (more ? next : now);
                b_now = bs + (more ? next : now);
              }
            }
            const int ahead = (turn + 1) % UNROLL * Step::DEPTH;
            fragment[(turn + 1) % 2].template load<Left::LD, Right::LD>(a_now, b_now, ahead);
            block.take(fragment[turn % 2], p.unit);
          }
        }
        marks.after(block.acc, t);
      }
    }
    if (const int rest = share.depth - whole * Tile::BK) {
      const int now = whole % 2 * WORDS;
      fetch(left, right, shared + now, rest);
      commit(left, right, shared + now);
      __syncthreads();  // the rest is there
      marks.before(block.acc);
#pragma unroll 1
      for (int k = 0; k < rest; ++k) {
        Fragment<Step, Tile, 1> fragment;
        fragment.template load<Left::LD, Right::LD>(as + now, bs + now, k);
        block.take(fragment, p.unit);
      }
      marks.after(block.acc, whole);
    }
    marks.store(p, block.acc, at);
    Epilogue<Step, Tile, C_WIDE>::store(p, block.acc, share, at);
  }

  SR_FN static void fetch(Left& left, Right& right, Word* stage, int k_left) {
    left.fetch(stage, k_left);
    right.fetch(stage + Left::WORDS, k_left);
    copy_commit();
  }
  SR_FN static void commit(Left& left, Right& right, Word* stage) {
    left.commit(stage);
    right.commit(stage + Left::WORDS);
    copy_wait<0>();
  }
};

}  // namespace sr

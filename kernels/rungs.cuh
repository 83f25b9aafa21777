// The way from the plain loop to the library's product: the parts of the template, put together as
// the textbooks do, one step after the other. What a rung adds is a template argument.
//
// Nothing here is launched by the library itself; semiring_mm/gpu/rungs.py has the list.
#pragma once
#include "epilogue.cuh"
#include "loader.cuh"
#include "multiplier.cuh"

namespace sr {

// A Tile (tile.cuh) without warps: TY x TX threads, numbered along the rows of C, with TM x TN
// elements each. It may have less than a warp.
//
// SPREAD: a thread's rows and columns come in groups of up to four that threads take turns with, so
// that neighbours read neighbouring words of shared memory, up to four at once; else they are adjacent.
template <int TY, int TX, int BK_, int TM_, int TN_, bool SPREAD, int PAD_>
struct Grid {
  static constexpr int BM = TY * TM_, BN = TX * TN_, BK = BK_, TM = TM_, TN = TN_, PAD = PAD_;
  static constexpr bool SWIZZLED = false;
  static constexpr int THREADS = TY * TX;
  static constexpr int VM = !SPREAD ? 1 : TM % 4 == 0 ? 4 : TM % 2 == 0 ? 2 : 1;
  static constexpr int VN = !SPREAD ? 1 : TN % 4 == 0 ? 4 : TN % 2 == 0 ? 2 : 1;
  static constexpr int LM = SPREAD ? TY : 1, LN = SPREAD ? TX : 1;  // threads that take turns
  static_assert(THREADS <= 1024, "a block has at most 1024 threads");
  static_assert(!SPREAD || (BM + PAD) % 4 == 0, "rows of shared memory are 16-byte aligned");
  static_assert(!SPREAD || (BN + PAD) % 4 == 0, "rows of shared memory are 16-byte aligned");

  SR_FN static int row(int i) { return place<TM, VM, LM>(int(threadIdx.x) / TX, i); }
  SR_FN static int column(int j) { return place<TN, VN, LN>(int(threadIdx.x) % TX, j); }

  template <int T, int V, int LANES>
  SR_FN static int place(int thread, int i) {
    return SPREAD ? i / V * (V * LANES) + thread * V + i % V : thread * T + i;
  }
};

// Loads and products pass through registers, even where a copy could go straight to shared memory.
template <class S>
struct Staged : S {
  static constexpr bool PLAIN = false;
};

// STAGES: tiles of A and B in shared memory; 0: none, every thread reads what it needs by itself.
// AHEAD: what comes next is asked for before the arithmetic: fragments of the next turn, and with one
// stage the next tile, which waits in registers.
// With more stages than one, tiles are asked for STAGES - 1 tiles ahead.
// MOST: turns in the body of the inner loop.
template <class Step, class Tile, int STAGES, bool AHEAD, bool A_K_UNIT, bool A_WIDE, bool B_K_UNIT,
          bool B_WIDE, bool C_WIDE, int MOST>
struct Rung {
  using Word = typename Step::Word;
  using Left = Loader<Step, true, Tile, A_K_UNIT, A_WIDE>;
  using Right = Loader<Step, false, Tile, B_K_UNIT, B_WIDE>;
  static constexpr int WORDS = Left::WORDS + Right::WORDS;  // of a stage
  static constexpr int BYTES = STAGES * WORDS * int(sizeof(Word));
  static constexpr int TURNS = Tile::BK / Step::DEPTH;
  static constexpr int UNROLL = TURNS < MOST ? TURNS : MOST;
  static_assert(TURNS % UNROLL == 0, "turns fill the loop's body");
  static_assert(!AHEAD || UNROLL % 2 == 0, "fragments take turns in two sets of registers");
  static_assert(STAGES < 2 || AHEAD, "what is copied beforehand is computed beforehand");
  static_assert(Step::COLUMNS == 1, "a column to a word");

  SR_FN static void run(const ProductParams& p) {
    const Share share(p);
    const Place<Step, Tile> at(p, share.tile);
    Left left;
    left.start(static_cast<const typename Left::Element*>(p.a) + at.batch * p.a_batch +
                   at.row * p.a_m, p.a_m, p.a_k, p.m - at.row);
    Right right;
    right.start(static_cast<const typename Right::Element*>(p.b) + at.batch * p.b_batch +
                    at.column * p.b_n, p.b_n, p.b_k, p.n - at.column);
    Multiplier<Step, Tile> block;
    block.clear();
    Word* shared = shared_memory<Word>();  // [STAGES] of [BK][BM + PAD] and [BK][BN + PAD]
    const int whole = p.k / Tile::BK, rest = p.k % Tile::BK;
    if constexpr (STAGES > 1) staged(left, right, block, shared, whole, p.unit);
    else if constexpr (AHEAD) ahead(left, right, block, shared, whole, p.unit);
    else blocked(left, right, block, shared, whole, p.unit);
    if (rest > 0) {
      left.fetch(shared, rest);
      right.fetch(shared + Left::WORDS, rest);
      commit(left, right, shared);
      copy_commit();
      copy_wait<0>();
      __syncthreads();  // the rest is there
      const Word* as = shared + Tile::row(0);
      const Word* bs = shared + Left::WORDS + Tile::column(0);
#pragma unroll 1
      for (int k = 0; k < rest; ++k) {
        Fragment<Step, Tile, 1> fragment;
        fragment.template load<Left::LD, Right::LD>(as, bs, k);
        block.take(fragment, p.unit);
      }
    }
    Epilogue<Step, Tile, C_WIDE>::store(p, block.acc, share, at);
  }

  // One stage: fetch, wait, multiply, wait.
  SR_FN static void blocked(Left& left, Right& right, Multiplier<Step, Tile>& block, Word* shared,
                            int whole, int unit) {
#pragma unroll 1
    for (int t = 0; t < whole; ++t) {
      fetch(left, right, shared);
      commit(left, right, shared);
      __syncthreads();  // tile t is there
      multiply(block, shared, unit);
      __syncthreads();  // tile t has been read
    }
  }

  // One stage, and the next tile in registers.
  SR_FN static void ahead(Left& left, Right& right, Multiplier<Step, Tile>& block, Word* shared,
                          int whole, int unit) {
    if (whole == 0) return;
    fetch(left, right, shared);
    commit(left, right, shared);
    __syncthreads();  // tile 0 is there
#pragma unroll 1
    for (int t = 0; t < whole; ++t) {
      const bool more = t + 1 < whole;
      if (more) fetch(left, right, shared);
      multiply(block, shared, unit);
      __syncthreads();  // tile t has been read
      if (more) {
        commit(left, right, shared);
        __syncthreads();  // tile t + 1 is there
      }
    }
  }

  // Several stages: tiles t + 1 to t + STAGES - 1 are on their way while tile t is multiplied. One
  // group of copies a tile, empty behind the last, so that to wait for a tile is to count groups.
  SR_FN static void staged(Left& left, Right& right, Multiplier<Step, Tile>& block, Word* shared,
                           int whole, int unit) {
#pragma unroll
    for (int t = 0; t < STAGES - 1; ++t) {
      if (t < whole) {
        fetch(left, right, shared + t * WORDS);
        commit(left, right, shared + t * WORDS);
      }
      copy_commit();
    }
    copy_wait<STAGES - 2>();
    __syncthreads();  // tile 0 is there
    int now = 0, last = (STAGES - 1) * WORDS;  // stages of tile t and of tile t + STAGES - 1
#pragma unroll 1
    for (int t = 0; t < whole; ++t) {
      const bool more = t + STAGES - 1 < whole;
      if (more) fetch(left, right, shared + last);
      copy_commit();
      multiply(block, shared + now, unit);
      if (more) commit(left, right, shared + last);
      copy_wait<STAGES - 2>();
      __syncthreads();  // tile t has been read, tile t + 1 is there
      last = now;
      now = now + WORDS < STAGES * WORDS ? now + WORDS : 0;
    }
    copy_wait<0>();
  }

  SR_FN static void multiply(Multiplier<Step, Tile>& block, const Word* stage, int unit) {
    const Word* as = stage + Tile::row(0);
    const Word* bs = stage + Left::WORDS + Tile::column(0);
    constexpr int SETS = AHEAD ? 2 : 1;
    Fragment<Step, Tile, Step::DEPTH> fragment[SETS];
    if constexpr (AHEAD) fragment[0].template load<Left::LD, Right::LD>(as, bs, 0);
#pragma unroll 1
    for (int part = 0; part < TURNS; part += UNROLL) {
#pragma unroll
      for (int turn = 0; turn < UNROLL; ++turn) {
        int k = (part + turn + AHEAD) * Step::DEPTH;
        if (AHEAD && turn + 1 == UNROLL && k == Tile::BK) k = 0;  // anything that is there
        fragment[(turn + AHEAD) % SETS].template load<Left::LD, Right::LD>(as, bs, k);
        block.take(fragment[turn % SETS], unit);
      }
    }
  }

  SR_FN static void fetch(Left& left, Right& right, Word* stage) {
    left.fetch(stage, Tile::BK);
    right.fetch(stage + Left::WORDS, Tile::BK);
  }
  SR_FN static void commit(Left& left, Right& right, Word* stage) {
    left.commit(stage);
    right.commit(stage + Left::WORDS);
  }
};

// No stage: every thread reads what it needs at each step of k, from wherever the caches have it.
template <class Step, class Tile, bool AHEAD, bool A_K_UNIT, bool A_WIDE, bool B_K_UNIT, bool B_WIDE,
          bool C_WIDE, int MOST>
struct Rung<Step, Tile, 0, AHEAD, A_K_UNIT, A_WIDE, B_K_UNIT, B_WIDE, C_WIDE, MOST> {
  using A = Side<Step, true>;
  using B = Side<Step, false>;
  static constexpr int BYTES = 0;
  static_assert(Step::COLUMNS == 1, "a column to a word");

  SR_FN static void run(const ProductParams& p) {
    const Share share(p);
    const Place<Step, Tile> at(p, share.tile);
    const typename A::Element* a[Tile::TM];  // [TM]: rows beyond the last are read as the last
    const typename B::Element* b[Tile::TN];  // [TN], and columns likewise; the epilogue drops them
#pragma unroll
    for (int i = 0; i < Tile::TM; ++i) {
      const i64 row = at.row + Tile::row(i);
      a[i] = static_cast<const typename A::Element*>(p.a) + at.batch * p.a_batch +
             (row < p.m ? row : p.m - 1) * p.a_m;
    }
#pragma unroll
    for (int j = 0; j < Tile::TN; ++j) {
      const i64 column = at.column + Tile::column(j);
      b[j] = static_cast<const typename B::Element*>(p.b) + at.batch * p.b_batch +
             (column < p.n ? column : p.n - 1) * p.b_n;
    }
    Multiplier<Step, Tile> block;
    block.clear();
    const i64 a_k = A_K_UNIT ? 1 : p.a_k, b_k = B_K_UNIT ? 1 : p.b_k;
#pragma unroll MOST
    for (int k = 0; k < p.k; ++k) {
      Fragment<Step, Tile, 1> fragment;
#pragma unroll
      for (int i = 0; i < Tile::TM; ++i) fragment.a[i][0] = A::word(a[i] + k * a_k);
#pragma unroll
      for (int j = 0; j < Tile::TN; ++j) fragment.b[j][0] = B::word(b[j] + k * b_k);
      block.take(fragment, p.unit);
    }
    Epilogue<Step, Tile, C_WIDE>::store(p, block.acc, share, at);
  }
};

}  // namespace sr

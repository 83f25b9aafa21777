// Kernel: the textbook's steps from the plain loop to the library's product. The library's loader,
// multiplier and epilogue with the textbook's pipelines; what a rung adds is a template argument.
//
// rungs.py puts this text before each rung's entry; the headers are those of kernels/.
#include "epilogue.cuh"
#include "pipeline.cuh"

namespace sr {

// A Tile (tile.cuh) without warps: TY x TX threads, numbered along the rows of C, with TM x TN
// elements each. It may have less than a warp.
//
// SPREAD: a thread's rows and columns come in groups of up to four, interleaved among the threads,
// so that neighbours read neighbouring words of shared memory, up to four at once; else they are
// adjacent.
template <int TY, int TX, int BK_, int TM_, int TN_, bool SPREAD, int PAD_>
struct Grid {
  static constexpr int BM = TY * TM_, BN = TX * TN_, BK = BK_, TM = TM_, TN = TN_, PAD = PAD_;
  static constexpr int SWIZZLED = 0, STAGES = 2;
  static constexpr bool PAIRS = false, IN_ORDER = false;
  static constexpr int THREADS = TY * TX;
  static constexpr int VM = !SPREAD ? 1 : TM % 4 == 0 ? 4 : TM % 2 == 0 ? 2 : 1;
  static constexpr int VN = !SPREAD ? 1 : TN % 4 == 0 ? 4 : TN % 2 == 0 ? 2 : 1;
  static constexpr int LM = SPREAD ? TY : 1, LN = SPREAD ? TX : 1;  // threads that interleave
  static_assert(THREADS <= 1024, "a block has at most 1024 threads");
  static_assert(!SPREAD || (BM + PAD) % 4 == 0, "rows of shared memory are 16-byte aligned");
  static_assert(!SPREAD || (BN + PAD) % 4 == 0, "rows of shared memory are 16-byte aligned");

  SR_FN static int row(int i) { return position<TM, VM, LM>(int(threadIdx.x) / TX, i); }
  SR_FN static int column(int j) { return position<TN, VN, LN>(int(threadIdx.x) % TX, j); }

  template <int T, int V, int LANES>
  SR_FN static int position(int thread, int i) {
    return SPREAD ? i / V * (V * LANES) + thread * V + i % V : thread * T + i;
  }
};

// Tiles pass through registers, even where they could be copied asynchronously.
template <class S>
struct Staged : S {
  static constexpr bool PLAIN = false, RIGHT_PLAIN = false;
};

// One tile of a stage, by at most MAX_UNROLL k steps in the body of the loop. AHEAD: the fragment
// of the next k step is loaded before the arithmetic of this one.
template <class Stage, bool AHEAD, int MAX_UNROLL>
struct TileLoop {
  using Step = typename Stage::Step;
  using Tile = typename Stage::Tile;
  static constexpr int K_STEPS = Tile::BK / Step::DEPTH;
  static constexpr int UNROLL = K_STEPS < MAX_UNROLL ? K_STEPS : MAX_UNROLL;
  static_assert(K_STEPS % UNROLL == 0, "the unrolled body fills a tile");
  static_assert(!AHEAD || UNROLL % 2 == 0, "fragments alternate between two sets of registers");

  SR_FN static void multiply(typename Stage::Block& block, const typename Stage::Word* stage,
                             int unit) {
    const auto* as = stage + Tile::row(0);
    const auto* bs = stage + Stage::B + Tile::column(0);
    constexpr int SETS = AHEAD ? 2 : 1;
    Fragment<Step, Tile, Step::DEPTH> fragment[SETS];  // [SETS]
    if constexpr (AHEAD) Stage::load_fragment(fragment[0], as, bs, 0);
#pragma unroll 1
    for (int part = 0; part < K_STEPS; part += UNROLL) {
#pragma unroll
      for (int s = 0; s < UNROLL; ++s) {
        int k = (part + s + AHEAD) * Step::DEPTH;
        if (AHEAD && s + 1 == UNROLL && k == Tile::BK) k = 0;  // the last: any valid address
        Stage::load_fragment(fragment[(s + AHEAD) % SETS], as, bs, k);
        block.take(fragment[s % SETS], unit);
      }
    }
  }
};

// One stage, two barriers a tile. AHEAD: the next tile waits in registers, so that global loads
// overlap with the arithmetic; else load, wait, multiply, wait, and nothing overlaps within a block.
template <class Stage, class Loop, bool AHEAD>
struct OneStage {
  SR_FN static void run(typename Stage::Left& left, typename Stage::Right& right,
                        typename Stage::Block& block, typename Stage::Word* shared, int tiles,
                        int unit) {
    if (AHEAD && tiles > 0) Stage::load(left, right, shared);
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      if (!AHEAD) Stage::load(left, right, shared);
      Stage::store(left, right, shared);
      __syncthreads();  // between storing tile t and reading it
      if (AHEAD && t + 1 < tiles) Stage::load(left, right, shared);
      Loop::multiply(block, shared, unit);
      __syncthreads();  // between reading tile t and storing tile t + 1
    }
  }
};

// STAGES stages: tiles t + 1 to t + STAGES - 1 are on their way while tile t is multiplied. There
// is one group of copies for each tile, and an empty one for each beyond the last, so that waiting
// for a tile means counting groups. One barrier a tile.
template <class Stage, class Loop, int STAGES_>
struct MultiStage {
  static constexpr int STAGES = STAGES_, WORDS = Stage::WORDS;
  static_assert(STAGES >= 2, "a tile is copied while another one is read");

  SR_FN static void run(typename Stage::Left& left, typename Stage::Right& right,
                        typename Stage::Block& block, typename Stage::Word* shared, int tiles,
                        int unit) {
#pragma unroll
    for (int t = 0; t < STAGES - 1; ++t) {
      if (t < tiles) {
        Stage::load(left, right, shared + t * WORDS);
        Stage::store(left, right, shared + t * WORDS);
      }
      copy_commit();
    }
    copy_wait<STAGES - 2>();
    __syncthreads();  // between storing tile 0 and reading it
    int now = 0, last = (STAGES - 1) * WORDS;  // stages of tile t and of tile t + STAGES - 1
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      const bool more = t + STAGES - 1 < tiles;
      if (more) Stage::load(left, right, shared + last);
      copy_commit();
      Loop::multiply(block, shared + now, unit);
      if (more) Stage::store(left, right, shared + last);
      copy_wait<STAGES - 2>();
      __syncthreads();  // between reads of tile t and overwriting it; stores of t + 1 and reads
      last = now;
      now = now + WORDS < STAGES * WORDS ? now + WORDS : 0;
    }
    copy_wait<0>();
  }
};

// No stage: each thread loads its fragments from global memory, wherever the caches have them.
template <class Step, class Tile, bool A_K_MAJOR, bool B_K_MAJOR, int MAX_UNROLL>
struct NoStage {
  static_assert(Step::COLUMNS == 1, "an element of B is a word");
  using A = Side<Step, true>;
  using B = Side<Step, false>;
  const typename A::Element* a[Tile::TM];  // [TM]: rows beyond the last are clamped to it, ...
  const typename B::Element* b[Tile::TN];  // [TN]: ... and columns; the epilogue drops them

  SR_FN void start(const ProductParams& p, const TileCoord<Step, Tile>& at) {
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
  }
  SR_FN void run(const ProductParams& p, Multiplier<Step, Tile>& block) const {
    const i64 a_k = A_K_MAJOR ? 1 : p.a_k, b_k = B_K_MAJOR ? 1 : p.b_k;
#pragma unroll MAX_UNROLL
    for (int k = 0; k < p.k; ++k) {
      Fragment<Step, Tile, 1> fragment;
#pragma unroll
      for (int i = 0; i < Tile::TM; ++i) fragment.a[i][0] = A::word(a[i] + k * a_k);
#pragma unroll
      for (int j = 0; j < Tile::TN; ++j) fragment.b[j][0] = B::word(b[j] + k * b_k);
      block.take(fragment, p.unit);
    }
  }
};

// STAGES: tiles of A and B in shared memory; 0: none. AHEAD: fragments are loaded one k step ahead
// and, with one stage, tiles one tile ahead into registers. MAX_UNROLL: k steps in the body of the
// inner loop.
template <class Step, class Tile, int STAGES, bool AHEAD, bool A_K_MAJOR, bool A_VECTOR,
          bool B_K_MAJOR, bool B_VECTOR, bool C_VECTOR, int MAX_UNROLL>
struct Rung {
  using Word = typename Step::Word;
  using Loads = Stage<Step, Tile, A_K_MAJOR, A_VECTOR, B_K_MAJOR, B_VECTOR>;
  using Loop = TileLoop<Loads, AHEAD, MAX_UNROLL>;
  static constexpr int BYTES = STAGES * Loads::WORDS * int(sizeof(Word));
  static_assert(STAGES < 2 || AHEAD, "tiles that are copied ahead are multiplied ahead, too");
  static_assert(STAGES > 1 || !(Loads::Left::ASYNC || Loads::Right::ASYNC),
                "with one stage, tiles pass through registers: nothing waits for copies");
  static_assert(Step::COLUMNS == 1, "the ladder has a column to a word");

  SR_FN static void run(const ProductParams& p) {
    const WorkTile work(p);
    const TileCoord<Step, Tile> at(p, work.tile);
    typename Loads::Left left;
    typename Loads::Right right;
    Loads::start(left, right, p, at, 0);
    Multiplier<Step, Tile> block;
    block.clear();
    Word* shared = shared_memory<Word>();  // [STAGES] of [BK][BM + PAD] and [BK][BN + PAD]
    const int tiles = p.k / Tile::BK, rest = p.k % Tile::BK;
    if constexpr (STAGES > 1) {
      MultiStage<Loads, Loop, STAGES>::run(left, right, block, shared, tiles, p.unit);
    } else {
      OneStage<Loads, Loop, AHEAD>::run(left, right, block, shared, tiles, p.unit);
    }
    if (rest > 0) {
      Loads::load(left, right, shared, rest);
      Loads::store(left, right, shared);
      copy_commit();
      copy_wait<0>();
      __syncthreads();  // between storing the rest and reading it
      const Word* as = shared + Tile::row(0);
      const Word* bs = shared + Loads::B + Tile::column(0);
#pragma unroll 1
      for (int k = 0; k < rest; ++k) {
        Fragment<Step, Tile, 1> fragment;
        Loads::load_fragment(fragment, as, bs, k);
        block.take(fragment, p.unit);
      }
    }
    Epilogue<Step, Tile, C_VECTOR>::store(p, block.acc, work, at);
  }
};

template <class Step, class Tile, bool AHEAD, bool A_K_MAJOR, bool A_VECTOR, bool B_K_MAJOR,
          bool B_VECTOR, bool C_VECTOR, int MAX_UNROLL>
struct Rung<Step, Tile, 0, AHEAD, A_K_MAJOR, A_VECTOR, B_K_MAJOR, B_VECTOR, C_VECTOR, MAX_UNROLL> {
  static constexpr int BYTES = 0;

  SR_FN static void run(const ProductParams& p) {
    const WorkTile work(p);
    const TileCoord<Step, Tile> at(p, work.tile);
    NoStage<Step, Tile, A_K_MAJOR, B_K_MAJOR, MAX_UNROLL> operands;
    operands.start(p, at);
    Multiplier<Step, Tile> block;
    block.clear();
    operands.run(p, block);
    Epilogue<Step, Tile, C_VECTOR>::store(p, block.acc, work, at);
  }
};

}  // namespace sr

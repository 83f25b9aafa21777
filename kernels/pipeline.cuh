// Pipelines: how tiles of A and B move through shared memory. The phases of every loop over k:
//
//     fetch      start to read a tile from global memory, to registers or (asynchronously) a stage
//     commit     registers to the stage; wait for asynchronous copies
//     barrier    the stage is complete for all threads of the block
//     k steps    BK / DEPTH times: load a fragment from the stage, fold it into the accumulators
//     remainder  the last k % BK steps of k, one by one
//
// `Stage` has the phases; product.cuh puts them together.
#pragma once
#include "loader.cuh"
#include "multiplier.cuh"
#include "schedule.cuh"

namespace sr {

// A stage: [BK][BM + PAD] words of A, then [BK][BN + PAD] words of B, and the phases that fill it.
// The two loaders are local variables of the kernel: as members of one object, their registers
// would be allocated together.
template <class Step_, class Tile_, bool A_K_MAJOR, bool A_VECTOR, bool B_K_MAJOR, bool B_VECTOR>
struct Stage {
  using Step = Step_;
  using Tile = Tile_;
  using Word = typename Step::Word;
  using Block = Multiplier<Step, Tile>;
  using Left = Loader<Step, true, Tile, A_K_MAJOR, A_VECTOR, B_K_MAJOR>;
  using Right = Loader<Step, false, Tile, B_K_MAJOR, B_VECTOR, A_K_MAJOR>;
  static constexpr int WORDS = Left::WORDS + Right::WORDS, B = Left::WORDS;  // in all; before B's
  static_assert(Left::WORDS % 4 == 0 || (!B_VECTOR && Tile::VN == 1),
                "where B is accessed in vectors, its words are 16-byte aligned");

  // Begin at the tile of C at `at`, and at step k of k. Params: pointers, strides and sizes of a
  // product; At: the tile's batch, row and column.
  template <class Params, class At>
  SR_FN static void start(Left& left, Right& right, const Params& p, const At& at, int k) {
    const int b0 = at.column / Step::COLUMNS * Step::ELEMENTS;  // first element of B along n
    const int b_columns = (p.n * Step::ELEMENTS + Step::COLUMNS - 1) / Step::COLUMNS;
    left.start(static_cast<const typename Left::Element*>(p.a) + at.batch * p.a_batch +
                   at.row * p.a_m + k * p.a_k, p.a_m, p.a_k, p.m - at.row);
    right.start(static_cast<const typename Right::Element*>(p.b) + at.batch * p.b_batch +
                    b0 * p.b_n + k * p.b_k, p.b_n, p.b_k, b_columns - b0);
  }

  // The next tile of k, of which `k_left` steps are inside of the matrix ...
  SR_FN static void load(Left& left, Right& right, Word* stage, int k_left = Tile::BK) {
    left.fetch(stage, k_left);
    right.fetch(stage + B, k_left);
  }
  // ... as one group of asynchronous copies.
  SR_FN static void fetch(Left& left, Right& right, Word* stage, int k_left = Tile::BK) {
    load(left, right, stage, k_left);
    copy_commit();
  }
  // Whether a whole tile can be fetched without a branch; it is fetched only if it is `active`.
  static constexpr bool AHEAD = Left::AHEAD && Right::AHEAD;
  SR_FN static void fetch_ahead(Left& left, Right& right, Word* stage, bool active) {
    left.fetch_ahead(stage, active);
    right.fetch_ahead(stage + B, active);
    copy_commit();
  }
  SR_FN static void store(Left& left, Right& right, Word* stage) {
    left.commit(stage);
    right.commit(stage + B);
  }
  SR_FN static void commit(Left& left, Right& right, Word* stage) {
    store(left, right, stage);
    copy_wait<0>();
  }

  // as, bs: a stage from this thread's first row of A on, and from its first column of B on, i.e.
  // from Tile::row(0) and from B + Tile::column(0).
  template <int DEPTH>
  SR_FN static void load_fragment(Fragment<Step, Tile, DEPTH>& x, const Word* as, const Word* bs,
                                  int k) {
    x.template load<Left::LD, Right::LD>(as, bs, k);
  }
};

}  // namespace sr

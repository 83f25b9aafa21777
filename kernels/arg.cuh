// The arg of a selective ⊕: which k won, at nearly the speed of the product. The main loop only
// keeps which tile of k last improved each accumulator (BestTiles); a second kernel computes that
// tile's terms again and names the first best k (FindArg).
#pragma once
#include "schedule.cuh"
#include "steps.cuh"
#include "tile.cuh"

namespace sr {

// What stands in k_tiles for a tile of k: the entry of C that was joined remains; or NaN won, in
// whichever tile.
enum { UNCHANGED = -1, NOT_A_NUMBER = -2 };

// The tile of k that last improved each accumulator; without ARG, nothing.
template <class Step, class Tile, bool ARG>
struct BestTiles {
  using Word = typename Step::Word;
  static constexpr int TM = Tile::TM, TN = Tile::TN;
  using At = TileCoord<Step, Tile>;
  SR_FN void start(const ProductParams&, Word (&)[TM][TN], const At&) {}
  SR_FN void before_tile(const Word (&)[TM][TN]) {}
  SR_FN void after_tile(const Word (&)[TM][TN], int) {}
  SR_FN void store(const ProductParams&, const Word (&)[TM][TN], const At&) const {}
};
template <class Step, class Tile>
struct BestTiles<Step, Tile, true> {
  static_assert(Step::COLUMNS == 1, "an arg for each accumulator");
  using A = typename Step::Algebra;
  using Word = typename Step::Word;
  using At = TileCoord<Step, Tile>;
  static constexpr int TM = Tile::TM, TN = Tile::TN;
  Word old[TM][TN];  // [TM][TN]: accumulators before the tile
  int best[TM][TN];  // [TM][TN]: tile of k

  // C, where it is joined, counts as earlier than every k: accumulators start from it.
  SR_FN void start(const ProductParams& p, Word (&acc)[TM][TN], const At& at) {
    using Storage = typename A::Storage;
    const Storage* c = static_cast<const Storage*>(p.c) + at.batch * p.c_batch;
    const bool joined = p.mode & READ_C;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        const int row = at.row + Tile::row(i), column = at.column + Tile::column(j);
        best[i][j] = joined ? UNCHANGED : 0;
        if (joined && row < p.m && column < p.n)
          acc[i][j] = A::decode(c[row * p.c_m + column * p.c_n]);
      }
  }
  SR_FN void before_tile(const Word (&acc)[TM][TN]) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) old[i][j] = acc[i][j];
  }
  SR_FN void after_tile(const Word (&acc)[TM][TN], int t) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j)
        if (A::better(acc[i][j], old[i][j])) best[i][j] = t;  // strictly: the first of equals stays
  }
  SR_FN void store(const ProductParams& p, const Word (&acc)[TM][TN], const At& at) const {
    int* k_tiles = p.k_tiles + at.batch * p.m * i64(p.n);  // [m][n]
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        const int row = at.row + Tile::row(i), column = at.column + Tile::column(j);
        // `better` is false for NaN, so its tile is not known
        const bool nan = A::NAN && acc[i][j] != acc[i][j] && best[i][j] != UNCHANGED;
        if (row < p.m && column < p.n)
          k_tiles[row * i64(p.n) + column] = nan ? int(NOT_A_NUMBER) : best[i][j];
      }
  }
};

// Kernel: the k of each entry, i.e. the first in the best tile of k that gives the best value. A
// thread for each entry; a block's columns of B stay in the cache while blocks go down the rows.
// A_VECTOR, B_VECTOR: four steps of k are contiguous and aligned.
template <class Step, int BK, bool A_VECTOR, bool B_VECTOR>
struct FindArg {
  using A = typename Step::Algebra;
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int COLUMNS = 32, ROWS = 8, THREADS = COLUMNS * ROWS;  // of a block
  static_assert(BK % 4 == 0, "k is read four at a time");

  SR_FN static void run(const ProductParams& p) {
    if (!is_selected(p)) return;
    const i64 high = (p.m + ROWS - 1) / ROWS, wide = (p.n + COLUMNS - 1) / COLUMNS;  // in blocks
    const i64 batch = blockIdx.x / (high * wide), block = blockIdx.x % (high * wide);
    const int row = int(block % high) * ROWS + int(threadIdx.x) / COLUMNS;
    const int column = int(block / high) * COLUMNS + int(threadIdx.x) % COLUMNS;
    if (row >= p.m || column >= p.n) return;
    const int tile = p.k_tiles[(batch * p.m + row) * p.n + column];
    if (tile == UNCHANGED) return;
    const Storage* a = static_cast<const Storage*>(p.a) + batch * p.a_batch + row * p.a_m;
    const Storage* b = static_cast<const Storage*>(p.b) + batch * p.b_batch + column * p.b_n;
    int k = tile == NOT_A_NUMBER ? first_nan(p, a, b) : first_best(p, a, b, tile * BK);
    if (p.gather) k = p.gather[k * p.gather_k + column * p.gather_n];
    p.arg[batch * p.arg_batch + row * p.arg_m + column * p.arg_n] = k;
  }

  // Among the BK steps of k from `first` on.
  SR_FN static int first_best(const ProductParams& p, const Storage* a, const Storage* b,
                              int first) {
    constexpr int N = A_VECTOR || B_VECTOR ? 4 : 1;
    Compute value[BK];  // [BK]
#pragma unroll
    for (int q = 0; q < BK; q += N) {
      const int k = first + q < p.k ? first + q : first;  // beyond k: the first again, which loses
      Storage left[N], right[N];  // [N]
      load_k<A_VECTOR>(left, a, k, p.a_k);
      load_k<B_VECTOR>(right, b, k, p.b_k);
#pragma unroll
      for (int e = 0; e < N; ++e) value[q + e] = A::mul(A::decode(left[e]), A::decode(right[e]));
    }
    int found = 0;
    Compute most = value[0];
#pragma unroll
    for (int q = 1; q < BK; ++q)
      if (A::better(value[q], most)) {
        most = value[q];
        found = q;
      }
    return first + found;
  }
  // N steps from k on, all of them inside: if N is 4, p.k is a multiple of 4.
  template <bool VECTOR, int N>
  SR_FN static void load_k(Storage (&x)[N], const Storage* from, int k, i64 stride) {
    if constexpr (VECTOR) {
      const auto group = *reinterpret_cast<const Pack<Storage, N>*>(from + k);  // [N]
#pragma unroll
      for (int e = 0; e < N; ++e) x[e] = group.x[e];
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e) x[e] = from[(k + e) * stride];
    }
  }
  SR_FN static int first_nan(const ProductParams& p, const Storage* a, const Storage* b) {
    int k = 0;
    for (; k + 1 < p.k; ++k) {
      const Compute value = A::mul(A::decode(a[k * p.a_k]), A::decode(b[k * p.b_k]));
      if (value != value) break;
    }
    return k;
  }
};

}  // namespace sr

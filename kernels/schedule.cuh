// Scheduling: what a launch of a product passes, and which part of the product a block computes.
//
//     launch ──> WorkTile: which tile of C, and which steps of k (split k)
//            ──> TileCoord: where that tile lies in C, in an order that reuses the caches
//            ──> is_selected, below_diagonal: blocks that have nothing to do
#pragma once
#include "base.cuh"

namespace sr {

// The parameters of a launch; the same fields in the same order in semiring_mm/gpu/source.py
// (PRODUCT). Strides and offsets count elements.
struct ProductParams {
  const void* a;       // [batch][m][k] of Step::Left
  const void* b;       // [batch][k][n] of Step::Right
  void* c;             // [batch][m][n] of Storage
  void* partials;      // [tiles of C][splits][TM * TN][THREADS] of Word, where k is split
  int* k_tiles;        // [batch][m][n]: the tile of k that won, from BestTiles to FindArg
  int* arg;            // [batch][m][n]: the k that won, ...
  const int* gather;   // ... or gather[k][j], only where an entry of C improved
  const u32* flags;    // [flag_words]: kinds of entries that blocks of a scan found (scan.cuh)
  u32* errors;         // set to 1 where a result does not fit its dtype
  i64 a_m, a_k, a_batch, b_k, b_n, b_batch, c_m, c_n, c_batch;
  i64 arg_m, arg_n, arg_batch, gather_k, gather_n;
  i64 alpha, beta;     // the low bytes are a Compute
  int m, n, k, batch;
  int tiles_m, tiles_n;  // tiles of a matrix C along rows and columns
  int whole;           // tiles of C that one block each computes for all of k; ...
  int splits, k_split; // ... the others take `splits` blocks, of `k_split` steps of k each
  int mode;            // READ_C | ALPHA | BETA
  u32 forbidden;       // kinds of entries with which ...
  int unless;          // ... this kernel does not run (0), or only runs (1)
  int unit;            // 1: see Step::take_mixed
  int triangle;        // 0, or the side of squares on the diagonal: tiles below them are skipped
  int flag_words;
};
enum { READ_C = 1, ALPHA = 2, BETA = 4 };  // C is read; α, β are given

// Two kernels are launched where the entries of the operands decide, and one of them returns at
// once. All lanes of a warp ask.
template <class Params>  // of any kernel that has these four fields
SR_FN bool is_selected(const Params& p) {
  if (!p.flags) return true;
  u32 found = 0;
#pragma unroll 1  // else the registers of the main loop are allocated in another order
  for (int i = int(threadIdx.x) % 32; i < p.flag_words; i += 32) found |= p.flags[i];
  return (ballot((found & p.forbidden) != 0) != 0) == (p.unless != 0);
}

// A block's work: a tile of C and a range of k.
struct WorkTile {
  int tile;     // of C, over all matrices of the batch
  int split;    // which of `splits` ranges of k; -1: all of k
  int k, depth; // first step of k, and how many

  // Blocks of a cluster are adjacent. Else the first parts of all tiles come first: they may be
  // longer than the last ones, which then fill the gaps.
  SR_FN explicit WorkTile(const ProductParams& p, int block = int(blockIdx.x),
                          bool cluster = false)
      : tile(block), split(-1), k(0), depth(p.k) {
    if (tile < p.whole) return;
    const int shared = p.tiles_m * p.tiles_n * p.batch - p.whole;
    split = cluster ? (block - p.whole) % p.splits : (block - p.whole) / shared;
    tile = p.whole + (cluster ? (block - p.whole) / p.splits : (block - p.whole) % shared);
    k = split * p.k_split;
    depth = p.k - k < p.k_split ? p.k - k : p.k_split;
  }
};
// Work tiles of a launch, for kernels whose blocks take several.
SR_FN int work_tiles(const ProductParams& p) {
  return p.whole + (p.tiles_m * p.tiles_n * p.batch - p.whole) * p.splits;
}

// Where tile `index` lies in C. Tiles are numbered down GROUP rows of tiles, column after column,
// so that blocks which run together share rows of A and columns of B in L2:
//
//     0 2 4        GROUP = 2, 3 x 3 tiles
//     1 3 5
//     6 7 8
template <class Step, class Tile>
struct TileCoord {
  i64 batch;
  int row, column;  // of C, the tile's first

  SR_FN TileCoord(const ProductParams& p, int index) {
    constexpr int GROUP = 8;
    const int tiles = p.tiles_m * p.tiles_n, tile = index % tiles;
    const int first = tile / (GROUP * p.tiles_n) * GROUP;
    const int high = p.tiles_m - first < GROUP ? p.tiles_m - first : GROUP;
    const int within = tile % (GROUP * p.tiles_n);
    batch = index / tiles;
    row = (first + within % high) * Tile::BM;
    column = within / high * (Tile::BN * Step::COLUMNS);
  }

  // Whether the whole tile lies below the squares of `side` rows on the diagonal.
  SR_FN bool below_diagonal(int side) const {
    return row - row % side >= column + Tile::BN * Step::COLUMNS;
  }
};

}  // namespace sr

// Kernels: copy the upper triangle of a square matrix to the lower one, X[j][i] = X[i][j] for i < j,
// and find whether the two are equal.
#pragma once
#include "scan.cuh"

namespace sr {

struct MirrorParams {
  void* x;             // [n][n]
  i64 row, column;     // strides in elements
  int n, tiles;        // tiles along one side
};

// Through shared memory, so that reads and writes are both contiguous along the rows. A block takes
// a tile of SIDE x SIDE.
template <class Entry>
struct Mirror {
  static constexpr int SIDE = 32, THREADS = 256, PITCH = SIDE + 1;  // + 1: no bank conflicts
  static_assert(THREADS % SIDE == 0, "threads read whole lines");

  SR_FN static void run(const MirrorParams& p) {
    const int row0 = int(blockIdx.x) / p.tiles * SIDE, column0 = int(blockIdx.x) % p.tiles * SIDE;
    if (row0 > column0) return;  // below the diagonal
    Entry* x = static_cast<Entry*>(p.x);
    Entry* tile = shared_memory<Entry>();  // [SIDE][PITCH]
    const int lane = int(threadIdx.x) % SIDE, line = int(threadIdx.x) / SIDE;
    for (int i = line; i < SIDE; i += THREADS / SIDE)
      if (row0 + i < p.n && column0 + lane < p.n)
        tile[i * PITCH + lane] = x[(row0 + i) * p.row + (column0 + lane) * p.column];
    __syncthreads();  // between storing the tile and reading it
    for (int j = line; j < SIDE; j += THREADS / SIDE)
      if (column0 + j < p.n && row0 + lane < p.n && column0 + j > row0 + lane)
        x[(column0 + j) * p.row + (row0 + lane) * p.column] = tile[lane * PITCH + j];
  }
};

struct SymmetricParams {
  const void* x;       // [n][n]
  u32* differs;        // becomes 1 where an entry is not that of the transpose
  i64 row, column;     // strides in elements
  int n, tiles;        // tiles along one side
};

// A block compares a tile of SIDE x SIDE above the diagonal with the one below. NaN equals nothing.
template <class Storage>
struct Symmetric {
  using Value = decltype(scanned(Storage{}));
  static constexpr int SIDE = 64, THREADS = 256, PITCH = SIDE + 1;  // + 1: no bank conflicts
  static_assert(THREADS % SIDE == 0, "threads read whole lines");

  SR_FN static void run(const SymmetricParams& p) {
    const int row0 = int(blockIdx.x) / p.tiles * SIDE, column0 = int(blockIdx.x) % p.tiles * SIDE;
    if (row0 > column0) return;  // below the diagonal
    const Storage* x = static_cast<const Storage*>(p.x);
    Storage* tile = shared_memory<Storage>();  // [SIDE][PITCH]
    const int lane = int(threadIdx.x) % SIDE, line = int(threadIdx.x) / SIDE;
    for (int i = line; i < SIDE; i += THREADS / SIDE)
      if (row0 + i < p.n && column0 + lane < p.n)
        tile[i * PITCH + lane] = x[(row0 + i) * p.row + (column0 + lane) * p.column];
    __syncthreads();  // between storing the tile and reading it
    bool differs = false;
    for (int j = line; j < SIDE; j += THREADS / SIDE)
      if (column0 + j < p.n && row0 + lane < p.n) {
        const Storage other = x[(column0 + j) * p.row + (row0 + lane) * p.column];
        differs |= !(Value(scanned(other)) == Value(scanned(tile[lane * PITCH + j])));
      }
    if (differs) atomic_or(p.differs, 1);
  }
};

}  // namespace sr

// Kernel: copy the upper triangle of a square matrix to the lower one, X[j][i] = X[i][j] for i < j.
#pragma once
#include "base.cuh"

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

}  // namespace sr

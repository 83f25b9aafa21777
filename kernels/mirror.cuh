// What is above the diagonal of a square matrix, copied below it.
#pragma once
#include "base.cuh"

namespace sr {

struct MirrorParams {
  void* x;             // [n][n]
  i64 row, column;     // strides in elements
  int n, tiles;        // tiles along one side
};

// Through shared memory, so that reading and writing both go along the rows. A tile takes one block.
template <class Entry>
struct Mirror {
  static constexpr int SIDE = 32, THREADS = 256, PITCH = SIDE + 1;  // + 1: no two in one bank

  SR_FN static void run(const MirrorParams& p) {
    const int above = int(blockIdx.x) / p.tiles * SIDE, right = int(blockIdx.x) % p.tiles * SIDE;
    if (above > right) return;
    Entry* x = static_cast<Entry*>(p.x);
    Entry* tile = shared_memory<Entry>();  // [SIDE][PITCH]
    const int lane = int(threadIdx.x) % SIDE, line = int(threadIdx.x) / SIDE;
    for (int i = line; i < SIDE; i += THREADS / SIDE)
      if (above + i < p.n && right + lane < p.n)
        tile[i * PITCH + lane] = x[(above + i) * p.row + (right + lane) * p.column];
    __syncthreads();  // the tile is whole
    for (int j = line; j < SIDE; j += THREADS / SIDE)
      if (right + j < p.n && above + lane < p.n && right + j > above + lane)
        x[(right + j) * p.row + (above + lane) * p.column] = tile[lane * PITCH + j];
  }
};

}  // namespace sr

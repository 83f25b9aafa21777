// Kernels: copy matrices between any two layouts, a transpose among them, or what is above the
// diagonal of one below it; and find whether a matrix equals its transpose.
#pragma once
#include "scan.cuh"

namespace sr {

struct CopyParams {
  const void* x;                    // [batch][rows][columns]
  void* y;                          // the same
  i64 x_row, x_column, x_batch;     // strides in elements
  i64 y_row, y_column, y_batch;
  int rows, columns, tiles_m, tiles_n;
};

// Through shared memory: x is read along its rows, and y written along its rows or, if ACROSS, along
// its columns, wherever entries are contiguous. A block takes a tile of SIDE x SIDE. UPPER: only of
// what is above the diagonal, and y may be the transpose of x in the same memory.
template <class Entry, bool ACROSS, bool UPPER>
struct Copy {
  static constexpr int SIDE = 32, THREADS = 256, PITCH = SIDE + 1;  // + 1: no bank conflicts
  static_assert(THREADS % SIDE == 0, "threads read whole lines");

  SR_FN static void run(const CopyParams& p) {
    const int tile = int(blockIdx.x) % (p.tiles_m * p.tiles_n);
    const i64 matrix = int(blockIdx.x) / (p.tiles_m * p.tiles_n);
    const i64 row0 = tile / p.tiles_n * SIDE, column0 = tile % p.tiles_n * SIDE;
    if (UPPER && row0 > column0) return;
    const Entry* x = static_cast<const Entry*>(p.x) + matrix * p.x_batch;
    Entry* y = static_cast<Entry*>(p.y) + matrix * p.y_batch;
    Entry* kept = shared_memory<Entry>();  // [SIDE][PITCH]
    const int lane = int(threadIdx.x) % SIDE, line = int(threadIdx.x) / SIDE;
    for (int i = line; i < SIDE; i += THREADS / SIDE)
      if (row0 + i < p.rows && column0 + lane < p.columns)
        kept[i * PITCH + lane] = x[(row0 + i) * p.x_row + (column0 + lane) * p.x_column];
    __syncthreads();  // between storing the tile and reading it
    for (int i = line; i < SIDE; i += THREADS / SIDE) {
      const int r = ACROSS ? lane : i, c = ACROSS ? i : lane;
      const i64 row = row0 + r, column = column0 + c;
      if (row < p.rows && column < p.columns && (!UPPER || row < column))
        y[row * p.y_row + column * p.y_column] = kept[r * PITCH + c];
    }
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

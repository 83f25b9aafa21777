// Kernel: sums and differences of matrices, or another function of them, entry by entry: all of it
// in one pass over memory (gpu/combine.py).
#pragma once
#include "base.cuh"

namespace sr {

// A block's threads lie in a grid, `lanes` of them along the columns; a thread has V adjacent
// columns.
template <int N>
struct CombineParams {
  void* x[N];
  i64 row[N], column[N];  // strides in elements
  i64 rows, columns;
  i64 segments;  // blocks along the columns
  double scalar;
  int lanes;
};

// Sums::of(v, scalar) replaces v[N], an entry of each matrix, by functions of them. READ and WRITTEN: bit i is
// set if matrix i is. VECTOR: 16 bytes are contiguous and aligned, wherever the kernel reads.
// Matrices may coincide: a thread reads all of its entries before it writes any.
template <class T, class Sums, int N, u32 READ, u32 WRITTEN, bool VECTOR>
struct Combine {
  static constexpr int THREADS = 256, V = VECTOR ? 16 / int(sizeof(T)) : 1;
  using Piece = Pack<T, V>;
  static_assert(N <= 32, "READ and WRITTEN have a bit for each matrix");

  SR_FN static void run(const CombineParams<N>& p) {
    const int thread = int(threadIdx.x), lines = THREADS / p.lanes;
    const i64 column = (blockIdx.x % p.segments * p.lanes + thread % p.lanes) * V;
    const i64 row = blockIdx.x / p.segments * lines + thread / p.lanes;
    if (row >= p.rows || column >= p.columns) return;
    Piece* at[N];  // [N]
    Piece x[N];  // [N][V]
#pragma unroll
    for (int i = 0; i < N; ++i) {
      at[i] = reinterpret_cast<Piece*>(static_cast<T*>(p.x[i]) + row * p.row[i] +
                                       column * p.column[i]);
      if (READ >> i & 1) x[i] = *at[i];
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      T entry[N] = {};  // [N]
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (READ >> i & 1) entry[i] = x[i].x[v];
      Sums::of(entry, p.scalar);
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (WRITTEN >> i & 1) x[i].x[v] = entry[i];
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (WRITTEN >> i & 1) *at[i] = x[i];
  }
};

}  // namespace sr

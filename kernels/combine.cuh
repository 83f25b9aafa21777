// Sums and differences of matrices, entry by entry: several of them in one pass.
#pragma once
#include "base.cuh"

namespace sr {

// A block's threads lie in a grid, `lanes` of them along the columns; a thread takes one chunk.
template <int N>
struct CombineParams {
  void* x[N];
  i64 row[N], column[N];  // strides in elements
  i64 rows, columns;
  i64 segments;  // blocks along the columns
  int lanes;
};

// Sums: `of(v)` replaces entries of the N matrices by sums of such. READ and WRITTEN: bit i where
// matrix i is. WIDE: 16 bytes lie side by side, aligned, wherever the kernel looks. Matrices may be
// the same: all are read before any is written.
template <class T, class Sums, int N, u32 READ, u32 WRITTEN, bool WIDE>
struct Combine {
  static constexpr int THREADS = 256, V = WIDE ? 16 / int(sizeof(T)) : 1;
  using Piece = Pack<T, V>;

  SR_FN static void run(const CombineParams<N>& p) {
    const int thread = int(threadIdx.x), lines = THREADS / p.lanes;
    const i64 column = (blockIdx.x % p.segments * p.lanes + thread % p.lanes) * V;
    const i64 row = blockIdx.x / p.segments * lines + thread / p.lanes;
    if (row >= p.rows || column >= p.columns) return;
    Piece* at[N];
    Piece x[N];  // [N][V]
#pragma unroll
    for (int i = 0; i < N; ++i) {
      at[i] = reinterpret_cast<Piece*>(static_cast<T*>(p.x[i]) + row * p.row[i] +
                                       column * p.column[i]);
      if (READ >> i & 1) x[i] = *at[i];
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      T entry[N] = {};
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (READ >> i & 1) entry[i] = x[i].x[v];
      Sums::of(entry);
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

// Sums and differences of matrices, entry by entry: several inputs and outputs in one pass.
#pragma once
#include "base.cuh"

namespace sr {

// A block's threads lie in a grid, `lanes` of them along the columns; a thread takes one chunk.
template <int IN, int OUT>
struct CombineParams {
  const void* x[IN];
  void* y[OUT];
  i64 x_row[IN], y_row[OUT], x_column[IN], y_column[OUT];  // strides in elements
  i64 rows, columns;
  i64 segments;  // blocks along the columns
  int lanes;
};

// Sums: `of(x, y)` makes an entry of each output of one of each input. WIDE: 16 bytes can be read and
// written at once along the columns. Outputs may be inputs: all are read before any is written.
template <class T, class Sums, int IN, int OUT, bool WIDE>
struct Combine {
  static constexpr int THREADS = 256, V = WIDE ? 16 / int(sizeof(T)) : 1;
  using Piece = Pack<T, V>;

  SR_FN static void run(const CombineParams<IN, OUT>& p) {
    const int thread = int(threadIdx.x), lines = THREADS / p.lanes;
    const i64 column = (blockIdx.x % p.segments * p.lanes + thread % p.lanes) * V;
    const i64 row = blockIdx.x / p.segments * lines + thread / p.lanes;
    if (row >= p.rows || column >= p.columns) return;
    Piece x[IN], y[OUT];
#pragma unroll
    for (int i = 0; i < IN; ++i)
      x[i] = *reinterpret_cast<const Piece*>(static_cast<const T*>(p.x[i]) + row * p.x_row[i] +
                                             column * p.x_column[i]);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      T from[IN], to[OUT];
#pragma unroll
      for (int i = 0; i < IN; ++i) from[i] = x[i].x[v];
      Sums::of(from, to);
#pragma unroll
      for (int i = 0; i < OUT; ++i) y[i].x[v] = to[i];
    }
#pragma unroll
    for (int i = 0; i < OUT; ++i)
      *reinterpret_cast<Piece*>(static_cast<T*>(p.y[i]) + row * p.y_row[i] +
                                column * p.y_column[i]) = y[i];
  }
};

}  // namespace sr

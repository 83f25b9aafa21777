// Kernel: a function of the entries of a matrix and of another one, or of a number, in place and in
// one pass over memory (gpu/combine.py).
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

// x[0] ← Function::of(x[0], x[1]), with the scalar in place of x[1] where N is 1. VECTOR: 16 bytes are
// contiguous and aligned, wherever the kernel reads.
template <class T, class Function, int N, bool VECTOR>
struct Combine {
  static constexpr int THREADS = 256, V = VECTOR ? 16 / int(sizeof(T)) : 1;
  using Piece = Pack<T, V>;
  static_assert(N == 1 || N == 2, "one matrix and a number, or two");

  SR_FN static void run(const CombineParams<N>& p) {
    const int thread = int(threadIdx.x), lines = THREADS / p.lanes;
    const i64 column = (blockIdx.x % p.segments * p.lanes + thread % p.lanes) * V;
    const i64 row = blockIdx.x / p.segments * lines + thread / p.lanes;
    if (row >= p.rows || column >= p.columns) return;
    const auto at = [&](int i) {
      return reinterpret_cast<Piece*>(static_cast<T*>(p.x[i]) + row * p.row[i] +
                                      column * p.column[i]);
    };
    Piece x = *at(0), other = {};
    if constexpr (N == 2) other = *at(1);
#pragma unroll
    for (int v = 0; v < V; ++v) x.x[v] = Function::of(x.x[v], N == 2 ? other.x[v] : T(p.scalar));
    *at(0) = x;
  }
};

}  // namespace sr

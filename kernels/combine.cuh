// Kernel: a function of the entries of a matrix and of another one, or of a number, in one pass over
// memory (gpu/combine.py).
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

// x[0] ← Function::of(x[1], x[2]), with the scalar in place of x[2] where N is 2. x[0] may be an
// operand. VECTOR: 16 bytes are contiguous and aligned, wherever the kernel reads and writes.
template <class T, class Function, int N, bool VECTOR>
struct Combine {
  static constexpr int THREADS = 256, V = VECTOR ? 16 / int(sizeof(T)) : 1;
  using Piece = Pack<T, V>;
  static_assert(N == 2 || N == 3, "a result, and one matrix and a number, or two");

  SR_FN static void run(const CombineParams<N>& p) {
    const int thread = int(threadIdx.x), lines = THREADS / p.lanes;
    const i64 column = (blockIdx.x % p.segments * p.lanes + thread % p.lanes) * V;
    const i64 row = blockIdx.x / p.segments * lines + thread / p.lanes;
    if (row >= p.rows || column >= p.columns) return;
    const auto at = [&](int i) {
      return reinterpret_cast<Piece*>(static_cast<T*>(p.x[i]) + row * p.row[i] +
                                      column * p.column[i]);
    };
    Piece x = *at(1), other = {};
    if constexpr (N == 3) other = *at(2);
#pragma unroll
    for (int v = 0; v < V; ++v) x.x[v] = Function::of(x.x[v], N == 3 ? other.x[v] : T(p.scalar));
    *at(0) = x;
  }
};

}  // namespace sr

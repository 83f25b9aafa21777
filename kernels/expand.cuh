// Kernel: Euclidean distances from products, |x|² + |y|² - 2 x·y (gpu/expand.py). Where that loses
// digits, since it is small beside the squares, the squared differences are summed up instead.
#pragma once
#include "base.cuh"

namespace sr {

struct ExpandParams {
  float* c;                    // [m][c_row]: -2 x·y, and then distances
  const float *left, *right;   // [m], [n]: squared norms
  const float *x, *y;          // [m][width], [n][width]: the points, contiguous
  i64 c_row, m, n;
  i64 segments;  // blocks along a row
  int width;
};

// A warp has 32 V adjacent entries of a row. ROOT: distances, not their squares.
template <bool VECTOR, bool ROOT>
struct Expand {
  static constexpr int WARPS = 8, V = VECTOR ? 4 : 1;
  static constexpr float LEAST = 1 / 8.0f;  // of the sum of squares: smaller ones have lost digits
  static constexpr int FEW = 8;             // pairs that a warp sums up one after the other
  using Piece = Pack<float, V>;

  SR_FN static void run(const ExpandParams& p) {
    const int lane = int(threadIdx.x) % 32;
    const i64 row = blockIdx.x / p.segments * WARPS + threadIdx.x / 32;
    const i64 column = (blockIdx.x % p.segments * 32 + lane) * V;
    if (row >= p.m) return;
    const bool inside = column < p.n;
    Piece* at = reinterpret_cast<Piece*>(p.c + row * p.c_row + column);
    Piece x{}, squares{};  // [V]
    if (inside) {
      x = *at;
      squares = *reinterpret_cast<const Piece*>(p.right + column);
    }
    const float own = p.left[row];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float sum = own + squares.x[v];
      x.x[v] += sum;
      // not for NaN, nor where a square is beyond float's range
      const bool kept = x.x[v] >= LEAST * sum && sum < infinity<float>();
      const u32 lost = ballot(inside && !kept);
      if (lost == 0) continue;
      if (popcount(lost) > FEW) {
        if (lost >> lane & 1) x.x[v] = gap(p, row, column + v, 0, 1);
      } else {
        for (u32 rest = lost; rest; rest &= rest - 1) {
          const int owner = bit_length(rest & (0u - rest)) - 1;
          float part = gap(p, row, column + (owner - lane) * V + v, lane, 32);
#pragma unroll
          for (int mask = 16; mask > 0; mask /= 2) part += shuffle_xor(part, mask);
          if (lane == owner) x.x[v] = part;
        }
      }
    }
    if (!inside) return;
    if constexpr (ROOT) {
#pragma unroll
      for (int v = 0; v < V; ++v) x.x[v] = sqrt(x.x[v]);
    }
    *at = x;
  }

  // Every `step`-th squared difference from coordinate `first` on.
  SR_FN static float gap(const ExpandParams& p, i64 row, i64 column, int first, int step) {
    const float* x = p.x + row * p.width;
    const float* y = p.y + column * p.width;
    float total = 0;
    for (int k = first; k < p.width; k += step) {
      const float d = x[k] - y[k];
      total = fma(d, d, total);
    }
    return total;
  }
};

}  // namespace sr

// Kernel: the gradients of a product whose ⊕ is logaddexp and whose ⊗ is a + b.
//
// What came to an entry of C goes to the terms of its sum by their shares, exp(a + b - c):
//
//     A's gradient [i, k] = Σ_j g[i, j] exp(a[i, k] + b[k, j] - c[i, j])
//     B's gradient [k, j] = Σ_i g[i, j] exp(a[i, k] + b[k, j] - c[i, j])
//
// The second sum is the first one of transposed operands, so one launch does both: each block has a
// tile of one of the two.
#pragma once
#include "base.cuh"

namespace sr {

// One of the two sums; the same fields in the same order in semiring_mm/gpu/shares.py.
struct SharesSide {
  const void* x;  // [batch][rows][columns]: the operand whose gradient it is
  const void* y;  // [batch][columns][depth]: the other operand
  const void* c;  // [batch][rows][depth]: the product
  const void* g;  // [batch][rows][depth]: what came to it
  void* out;      // [batch][rows][columns]
  i64 x_row, x_column, x_batch, y_column, y_step, y_batch, c_row, c_step, c_batch;
  i64 g_row, g_step, g_batch, out_row, out_column, out_batch;
  int rows, columns, depth, tiles_m, tiles_n, blocks;
};
struct SharesParams {
  SharesSide sides[2];  // the blocks of the first side come first
};

template <class T>
struct Shares {
  static constexpr int ROWS = 32, COLUMNS = 32, STEPS = 32;  // of a tile
  static constexpr int LANES = 32, THREADS = 256;            // a lane for each column
  static constexpr int EACH = ROWS * LANES / THREADS;        // rows of a thread
  static constexpr int LD = ROWS + EACH;                     // words of a step in shared memory
  static constexpr int BYTES = 3 * STEPS * LD * int(sizeof(T));

  // Entries [rows][depth] of a matrix on their way to shared memory, [STEPS][LD].
  struct Part {
    static constexpr int COUNT = ROWS * STEPS / THREADS;
    const T* from;  // of the tile's first row
    i64 row, step;  // strides
    int rows;       // inside of the matrix from there on
    bool by_step;   // whether neighbouring threads lie along the steps
    T held[COUNT];  // [COUNT]

    SR_FN void start(const void* first, i64 offset, int at, i64 row_, i64 step_, int end) {
      from = static_cast<const T*>(first) + offset + at * row_;
      row = row_, step = step_, rows = end - at;
      by_step = abs(step) <= abs(row);
    }
    SR_FN void place(int e, int& i, int& s) const {
      const int at = int(threadIdx.x) + e * THREADS;
      i = by_step ? at / STEPS : at % ROWS;
      s = by_step ? at % STEPS : at / ROWS;
    }
    // Rows and steps outside of the matrix are clamped: they are dropped later.
    SR_FN void fetch(int k, int depth) {
#pragma unroll
      for (int e = 0; e < COUNT; ++e) {
        int i, s;
        place(e, i, s);
        i = i < rows ? i : rows - 1;
        s = k + s < depth ? k + s : depth - 1;
        held[e] = from[i * row + s * step];
      }
    }
    SR_FN void commit(T* to) const {
#pragma unroll
      for (int e = 0; e < COUNT; ++e) {
        int i, s;
        place(e, i, s);
        to[s * LD + i] = held[e];
      }
    }
  };

  SR_FN static void run(const SharesParams& p) {
    const bool second = int(blockIdx.x) >= p.sides[0].blocks;
    const SharesSide& side = p.sides[second];
    const int block = int(blockIdx.x) - (second ? p.sides[0].blocks : 0);
    const int tiles = side.tiles_m * side.tiles_n;
    const i64 batch = block / tiles;
    const int row0 = block % tiles / side.tiles_n * ROWS;
    const int column0 = block % tiles % side.tiles_n * COLUMNS;
    const int lane = int(threadIdx.x) % LANES, first = int(threadIdx.x) / LANES * EACH;
    const int column = column0 + lane < side.columns ? column0 + lane : side.columns - 1;
    T x[EACH], sum[EACH];  // [EACH]: rows of a column
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int row = row0 + first + i < side.rows ? row0 + first + i : side.rows - 1;
      x[i] = static_cast<const T*>(side.x)[batch * side.x_batch + row * side.x_row +
                                           column * side.x_column];
      sum[i] = T(0);
    }
    T* gs = shared_memory<T>();  // [STEPS][LD], three times
    T* cs = gs + STEPS * LD;
    T* ys = cs + STEPS * LD;
    Part g, c, y;
    g.start(side.g, batch * side.g_batch, row0, side.g_row, side.g_step, side.rows);
    c.start(side.c, batch * side.c_batch, row0, side.c_row, side.c_step, side.rows);
    y.start(side.y, batch * side.y_batch, column0, side.y_column, side.y_step, side.columns);
    g.by_step = c.by_step;  // see fetch
    fetch(g, c, y, 0, side.depth);
    for (int k = 0; k < side.depth; k += STEPS) {
      g.commit(gs);
      c.commit(cs);
      y.commit(ys);
      __syncthreads();  // between storing a tile and reading it
      if (k + STEPS < side.depth) fetch(g, c, y, k + STEPS, side.depth);
      const int steps = side.depth - k < STEPS ? side.depth - k : STEPS;
#pragma unroll 4
      for (int s = 0; s < steps; ++s) {
        const auto came = *reinterpret_cast<const Pack<T, EACH>*>(gs + s * LD + first);
        const auto total = *reinterpret_cast<const Pack<T, EACH>*>(cs + s * LD + first);
        const T other = ys[s * LD + lane];
#pragma unroll
        for (int i = 0; i < EACH; ++i) sum[i] = joined(sum[i], came.x[i], x[i], other, total.x[i]);
      }
      __syncthreads();  // between reading a tile and storing the next one
    }
    if (column0 + lane >= side.columns) return;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int row = row0 + first + i;
      if (row < side.rows)
        static_cast<T*>(side.out)[batch * side.out_batch + row * side.out_row +
                                  column * side.out_column] = sum[i];
    }
  }

  SR_FN static void fetch(Part& g, Part& c, Part& y, int k, int depth) {
    g.fetch(k, depth);
    c.fetch(k, depth);
    y.fetch(k, depth);
    // an empty sum has no shares; a thread holds the same entries of both
#pragma unroll
    for (int e = 0; e < Part::COUNT; ++e) {
      if (c.held[e] != -infinity<T>()) continue;
      c.held[e] = infinity<T>();
      g.held[e] = T(0);
    }
  }

  // sum + g exp(a + b - c). The exponent is exact but for the last rounding: what a + b loses is
  // added to the difference, which is small where the share is large. The root of the exponential
  // is taken, so that shares below the smallest number count where g makes up for it.
  SR_FN static T joined(T sum, T g, T a, T b, T c) {
    const T both = a + b, part = both - a;
    const T lost = (a - (both - part)) + (b - part);
    const T above = (both - c) + (both > -infinity<T>() ? lost : T(0));
    const T root = exp2_approx(above * T(0.72134752044448170368));  // log2(e) / 2
    return fma(g * root, root, sum);
  }
};

}  // namespace sr

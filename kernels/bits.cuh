// Kernels: distances between rows of bits, by population counts (gpu/bit_rows.py).
#pragma once
#include "base.cuh"

namespace sr {

struct BitParams {
  const u32* left;        // [m][words]
  const u32* right;       // [n][words]
  u32* left_bits;         // [m]: how many bits rows have; and of what is not null ...
  const u32* right_bits;  // [n]
  double* out;            // [m][step]: distances; of Pairs [m][capacity]
  const u32* count;       // [m]: candidates; those beyond the capacity are not there
  const u32* candidates;  // [m][capacity]: rows of `right`
  i64 step, capacity;
  double columns;
  int m, n, words;
};

enum BitMetric { HAMMING, JACCARD, DICE, COSINE, INTERSECTION };  // as metrics.BIT_METRICS

// As cpu/kernels/bit_rows.py has it: rows without bits are equal.
template <BitMetric METRIC>
SR_FN double bit_distance(u32 common, u32 p, u32 q, double columns) {
  const double c = common, both = double(p) + double(q), gaps = both - 2 * c;
  double above = gaps, below = columns;
  if constexpr (METRIC == JACCARD) below = both - c;
  if constexpr (METRIC == DICE) below = both;
  if constexpr (METRIC == COSINE) {
    below = max(sqrt(double(p) * double(q)), min(both, 1.0));
    above = below - c;
  }
  if constexpr (METRIC == INTERSECTION) {
    above = -c;
    below = 1;
  }
  return above / max(below, 1.0);
}

// Kernel: how many bits each row of `left` has, by a warp for each.
template <int THREADS>
struct BitSizes {
  SR_FN static void run(const BitParams& p) {
    const i64 row = i64(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
    if (row >= p.m) return;
    int count = 0;
    for (int w = int(threadIdx.x) % 32; w < p.words; w += 32)
      count += popcount(p.left[row * p.words + w]);
#pragma unroll
    for (int mask = 16; mask; mask /= 2) count += shuffle_xor(count, mask);
    if (threadIdx.x % 32 == 0) p.left_bits[row] = u32(count);
  }
};

// Kernel: the distances of all rows; a block has SIDE x SIDE of them, a thread EACH x EACH.
template <BitMetric METRIC>
struct BitTile {
  static constexpr int EACH = 4, LINE = 16, SIDE = LINE * EACH, THREADS = LINE * LINE;
  static constexpr int DEPTH = 16, PITCH = DEPTH + 1;  // words at once; + 1: no bank conflicts

  SR_FN static void run(const BitParams& p) {
    u32* left = shared_memory<u32>();  // [SIDE][PITCH]
    u32* right = left + SIDE * PITCH;  // [SIDE][PITCH]
    const i64 tiles = (p.n + SIDE - 1) / SIDE;
    const i64 row0 = blockIdx.x / tiles * SIDE, column0 = blockIdx.x % tiles * SIDE;
    const int i0 = int(threadIdx.x) / LINE, j0 = int(threadIdx.x) % LINE;
    u32 common[EACH][EACH] = {};  // [EACH][EACH]
    for (int k = 0; k < p.words; k += DEPTH) {
      load(left, p.left, row0, p.m, k, p.words);
      load(right, p.right, column0, p.n, k, p.words);
      __syncthreads();  // between storing the words and reading them
#pragma unroll
      for (int w = 0; w < DEPTH; ++w)
#pragma unroll
        for (int i = 0; i < EACH; ++i)
#pragma unroll
          for (int j = 0; j < EACH; ++j)
            common[i][j] += u32(popcount(left[(i0 + LINE * i) * PITCH + w] &
                                         right[(j0 + LINE * j) * PITCH + w]));
      __syncthreads();  // between reading the words and storing the next
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i)
#pragma unroll
      for (int j = 0; j < EACH; ++j) {
        const i64 row = row0 + i0 + LINE * i, column = column0 + j0 + LINE * j;
        if (row < p.m && column < p.n)
          p.out[row * p.step + column] = bit_distance<METRIC>(
              common[i][j], p.left_bits[row], p.right_bits[column], p.columns);
      }
  }
  // Words k, ... of rows, 0 past the ends.
  SR_FN static void load(u32* to, const u32* from, i64 row0, int rows, int k, int words) {
#pragma unroll
    for (int e = int(threadIdx.x); e < SIDE * DEPTH; e += THREADS) {
      const int row = e / DEPTH, w = e % DEPTH;
      const bool inside = row0 + row < rows && k + w < words;
      to[row * PITCH + w] = inside ? from[(row0 + row) * words + k + w] : 0;
    }
  }
};

// Kernel: the distances of candidates; a warp has a row, of which four candidates at once.
template <BitMetric METRIC, int THREADS>
struct BitPairs {
  SR_FN static void run(const BitParams& p) {
    const i64 row = i64(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
    if (row >= p.m) return;
    const int group = int(threadIdx.x) % 32 / 8, lane = int(threadIdx.x) % 8;
    const u32* own = p.left + row * p.words;
    const i64 all = i64(p.count[row]), count = all < p.capacity ? all : p.capacity;
    for (i64 first = 0; first < count; first += 4) {
      const i64 at = row * p.capacity + first + group;
      const bool there = first + group < count;
      const u32 column = there ? p.candidates[at] : 0;
      int common = 0;
      for (int w = lane; w < p.words; w += 8)
        common += popcount(own[w] & p.right[i64(column) * p.words + w]);
#pragma unroll
      for (int mask = 4; mask; mask /= 2) common += shuffle_xor(common, mask);
      if (there && lane == 0)
        p.out[at] = bit_distance<METRIC>(u32(common), p.left_bits[row], p.right_bits[column],
                                         p.columns);
    }
  }
};

}  // namespace sr

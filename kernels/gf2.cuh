// Kernel: Gauss-Jordan elimination over GF(2) of a narrow matrix that one block holds, with the
// combinations of rows that it takes. Bits are those of pack.cuh.
#pragma once
#include "base.cuh"

namespace sr {

struct ReduceParams {
  const u32* rows;  // [rows][pitch], of words of 32 columns
  u32* from;        // [columns][THREADS / 32]: the rows whose sum is the reduced row of that pivot
  int* pivots;      // [columns]: the row that has the pivot of a column, or -1
  i64 pitch;        // words
  int row_count, columns;
};

// WORDS of 32 columns; a thread has a row, of at most THREADS, in registers: its columns, and then
// the rows that were added to it.
template <int WORDS, int THREADS>
struct ReduceBits {
  static constexpr int SUMS = THREADS / 32, ALL = WORDS + SUMS, WARPS = THREADS / 32;
  static_assert(THREADS % 32 == 0 && WARPS <= 32, "a warp finds the first of all warps");

  SR_FN static void run(const ReduceParams& p) {
    u32* pivot_row = shared_memory<u32>();                        // [2][ALL]
    int* first = reinterpret_cast<int*>(pivot_row + 2 * ALL);     // [2][WARPS]: rows with the bit
    const int thread = int(threadIdx.x), lane = thread % 32;
    u32 own[ALL];  // [ALL]
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
      own[w] = thread < p.row_count && 32 * w < p.columns ? p.rows[thread * p.pitch + w] : 0;
#pragma unroll
    for (int w = 0; w < SUMS; ++w) own[WORDS + w] = w == thread / 32 ? 1u << (lane ^ 7) : 0;
    int column_of_pivot = -1;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
      for (int j = 0; j < 32; ++j) {
        const int column = 32 * w + j, turn = j % 2;
        if (column >= p.columns) break;
        const bool mine = own[w] >> (j ^ 7) & 1u;
        const u32 found = ballot(mine && column_of_pivot < 0);
        if (lane == 0) first[turn * WARPS + thread / 32] = found ? lowest(found) : -1;
        __syncthreads();  // between storing what each warp found and reading it
        const int there = lane < WARPS ? first[turn * WARPS + lane] : -1;
        const u32 warps = ballot(there >= 0);
        if (!warps) {  // the same for all threads
          if (thread == 0) p.pivots[column] = -1;
          if (thread < SUMS) p.from[column * SUMS + thread] = 0;
          continue;
        }
        const int warp = lowest(warps), pivot = 32 * warp + first[turn * WARPS + warp];
        if (thread == pivot) {
          column_of_pivot = column;
          p.pivots[column] = thread;
#pragma unroll
          for (int e = 0; e < ALL; ++e) pivot_row[turn * ALL + e] = own[e];
        }
        __syncthreads();  // between storing the row of the pivot and reading it
        if (mine && thread != pivot) {
#pragma unroll
          for (int e = 0; e < ALL; ++e) own[e] ^= pivot_row[turn * ALL + e];
        }
      }
    if (column_of_pivot < 0) return;
#pragma unroll
    for (int w = 0; w < SUMS; ++w) p.from[column_of_pivot * SUMS + w] = own[WORDS + w];
  }

  // The number of the lowest bit that is set.
  SR_FN static int lowest(u32 x) { return bit_length(x & (0u - x)) - 1; }
};

}  // namespace sr

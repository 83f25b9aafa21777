// Kernel: pack truth values, a byte each, into words of 32 columns: column j is bit j % 32 of word
// j / 32 (the B of steps.cuh: Bits).
#pragma once
#include "base.cuh"

namespace sr {

// A thread packs a word, or a word of each of four rows; a block's threads lie in a grid, `lanes`
// of them along the words.
struct PackParams {
  const void* b;
  u32* out;  // [batch][rows][words]
  i64 batch_stride, row_stride, column_stride;
  i64 rows;
  i64 segments, groups;  // blocks along the words and along the rows
  int columns, words;
  int lanes;
};

// 1 in each byte that is not 0; and four such bytes as adjacent bits.
SR_FN u32 ones(u32 x) { return (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7 & 0x01010101u; }
SR_FN u32 gathered(u32 ones) { return ones * 0x01020408u >> 24 & 0xfu; }

// BY_ROWS: rows are closer in memory than columns, so neighbouring threads take neighbouring rows.
// VECTOR: 16 bytes can be read at once along the columns, or 4 along the rows.
template <bool VECTOR, bool BY_ROWS>
struct PackBits {
  static constexpr int THREADS = 256, ROWS = VECTOR && BY_ROWS ? 4 : 1;

  SR_FN static void run(const PackParams& p) {
    const int thread = int(threadIdx.x), lines = THREADS / p.lanes;
    const int lane = BY_ROWS ? thread / lines : thread % p.lanes;
    const int line = BY_ROWS ? thread % lines : thread / p.lanes;
    const u32 segments = u32(p.segments), groups = u32(p.groups);
    const u32 segment = blockIdx.x % segments, rest = blockIdx.x / segments;
    const i64 word = i64(segment) * p.lanes + lane;
    const i64 row = (i64(rest % groups) * lines + line) * ROWS, batch = rest / groups;
    if (word >= p.words || row >= p.rows) return;
    const int column = int(word) * 32, here = p.columns - column < 32 ? p.columns - column : 32;
    const u8* from = static_cast<const u8*>(p.b) + batch * p.batch_stride + row * p.row_stride +
                     column * p.column_stride;
    u32* out = p.out + (batch * p.rows + row) * p.words + word;
    if constexpr (ROWS == 4) {
      four_rows(p, from, here, out);
      return;
    }
    u32 bits = 0;
    if (VECTOR && here == 32) {
      using Chunk = Pack<u32, 4>;
      Chunk x[2];  // [2] of [4] words of 4 columns
#pragma unroll
      for (int c = 0; c < 2; ++c) x[c] = reinterpret_cast<const Chunk*>(from)[c];
#pragma unroll
      for (int q = 0; q < 8; ++q) bits |= gathered(ones(x[q / 4].x[q % 4])) << 4 * q;
    } else if (here == 32) {
      u8 x[32];  // [32]
#pragma unroll
      for (int j = 0; j < 32; ++j) x[j] = from[j * p.column_stride];
      compiler_fence();
#pragma unroll
      for (int j = 0; j < 32; ++j) bits |= u32(x[j] != 0) << j;
    } else {
      for (int j = 0; j < here; ++j) bits |= u32(from[j * p.column_stride] != 0) << j;
    }
    *out = bits;
  }

  // Rows come in fours: a word that is read has a byte of each of them.
  SR_FN static void four_rows(const PackParams& p, const u8* from, int here, u32* out) {
    u32 x[32];          // [32] columns of four rows
    u32 bits[4] = {};   // [4]: byte r of bits[j] has the columns 8 j to 8 j + 7 of row r
#pragma unroll
    for (int j = 0; j < 32; ++j)
      x[j] = *reinterpret_cast<const u32*>(from + (j < here ? j : 0) * p.column_stride);
    compiler_fence();
#pragma unroll
    for (int j = 0; j < 32; ++j)
      if (j < here) bits[j / 8] |= ones(x[j]) << j % 8;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      u32 word = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) word |= (bits[j] >> 8 * r & 0xffu) << 8 * j;
      out[r * i64(p.words)] = word;
    }
  }
};

}  // namespace sr

// Truth values, one byte each, to words of 32 columns: bit j % 32 of word j / 32.
#pragma once
#include "base.cuh"

namespace sr {

// A thread makes a word; a block's threads lie in a grid, `lanes` of them along the words.
struct PackParams {
  const void* b;
  u32* out;  // [batch][rows][words]
  i64 batch_stride, row_stride, column_stride;
  i64 rows;
  i64 segments, groups;  // blocks along the words and along the rows
  int columns, words;
  int lanes;
};

// The four bytes of a word that are not 0, as four bits.
SR_FN u32 truths(u32 x) {
  const u32 ones = (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7 & 0x01010101u;
  return ones * 0x01020408u >> 24 & 0xfu;
}

// WIDE: 16 bytes can be read at once along the columns. BY_ROWS: the rows lie closer than the columns,
// so neighbouring threads take neighbouring rows.
template <bool WIDE, bool BY_ROWS>
struct PackBits {
  static constexpr int THREADS = 256;

  SR_FN static void run(const PackParams& p) {
    const int thread = int(threadIdx.x), lines = THREADS / p.lanes;
    const int lane = BY_ROWS ? thread / lines : thread % p.lanes;
    const int line = BY_ROWS ? thread % lines : thread / p.lanes;
    const u32 segments = u32(p.segments), groups = u32(p.groups);
    const u32 segment = blockIdx.x % segments, rest = blockIdx.x / segments;
    const i64 word = i64(segment) * p.lanes + lane;
    const i64 row = i64(rest % groups) * lines + line, batch = rest / groups;
    if (word >= p.words || row >= p.rows) return;
    const int column = int(word) * 32, here = p.columns - column < 32 ? p.columns - column : 32;
    const u8* from = static_cast<const u8*>(p.b) + batch * p.batch_stride + row * p.row_stride +
                     column * p.column_stride;
    u32 bits = 0;
    if (WIDE && here == 32) {
      using Chunk = Pack<u32, 4>;
      Chunk x[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) x[c] = reinterpret_cast<const Chunk*>(from)[c];
#pragma unroll
      for (int q = 0; q < 8; ++q) bits |= truths(x[q / 4].x[q % 4]) << 4 * q;
    } else if (here == 32) {
      u8 x[32];
#pragma unroll
      for (int j = 0; j < 32; ++j) x[j] = from[j * p.column_stride];
#pragma unroll
      for (int j = 0; j < 32; ++j) bits |= u32(x[j] != 0) << j;
    } else {
      for (int j = 0; j < here; ++j) bits |= u32(from[j * p.column_stride] != 0) << j;
    }
    p.out[(batch * p.rows + row) * p.words + word] = bits;
  }
};

}  // namespace sr

// Truth values as bits: eight to a byte in the order of np.packbits, so that of a word of 4 bytes
// column j is bit j ^ 7. Rows end with words, whose last bits are 0.
#pragma once
#include "base.cuh"

namespace sr {

struct PackParams {
  const void* from;  // [batch][rows][columns] of bytes, or bits for TransposeBits
  void* to;          // [batch][rows][pitch] of u32
  i64 batch_stride, row_stride, column_stride;  // of `from`, in bytes
  i64 pitch;                      // words
  i64 row_groups, column_groups;  // blocks along the rows and the columns
  int rows, columns;
  int lanes;  // PackRows: threads along the words of a row
};

// 1 in each byte that is not 0.
SR_FN u32 ones(u32 x) { return (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7 & 0x01010101u; }
// Four such bytes as bits 3, 2, 1, 0, and back.
SR_FN u32 gathered(u32 ones) { return ones * 0x08040201u >> 24 & 0xfu; }
SR_FN u32 spread(u32 bits) { return (bits & 0xfu) * 0x08040201u >> 3 & 0x01010101u; }

// Kernel: bytes that are closer along the columns than along the rows. VECTOR: 16 of them can be read
// at once, and a thread packs a word; else a warp reads one for each lane, and packs 32 words.
template <bool VECTOR>
struct PackRows {
  static constexpr int THREADS = 256;

  SR_FN static void run(const PackParams& p) {
    const int thread = int(threadIdx.x), lines = THREADS / p.lanes;
    const i64 rest = blockIdx.x / p.column_groups, batch = rest / p.row_groups;
    const i64 word = blockIdx.x % p.column_groups * p.lanes + thread % p.lanes;
    const i64 row = rest % p.row_groups * lines + thread / p.lanes;
    const int column = int(word) * 32, here = p.columns - column < 32 ? p.columns - column : 32;
    const u8* from = static_cast<const u8*>(p.from) + batch * p.batch_stride + row * p.row_stride;
    u32 bits = 0;
    if constexpr (!VECTOR) {
      if (row < p.rows) bits = by_lanes(p, from, int(word) - thread % 32);
      if (here <= 0 || row >= p.rows) return;
    } else if (here <= 0 || row >= p.rows) {
      return;
    } else if (here == 32) {
      Pack<u32, 4> x[2];  // [2] of [4] words of 4 columns
#pragma unroll
      for (int c = 0; c < 2; ++c) x[c] = reinterpret_cast<const Pack<u32, 4>*>(from + column)[c];
#pragma unroll
      for (int e = 0; e < 8; ++e)
        bits |= gathered(ones(x[e / 4].x[e % 4])) << (8 * (e / 2) + 4 - 4 * (e % 2));
    } else {
      for (int j = 0; j < here; ++j) bits |= u32(from[column + j] != 0) << (j ^ 7);
    }
    static_cast<u32*>(p.to)[(batch * p.rows + row) * p.pitch + word] = bits;
  }

  // Lane l's word of 32, from this one on, of a row that a warp has.
  SR_FN static u32 by_lanes(const PackParams& p, const u8* row, int word) {
    constexpr int TOGETHER = 16;  // loads in flight
    const int lane = int(threadIdx.x) % 32;
    u32 mine = 0;
    for (int first = 0; first < 32 && (word + first) * 32 < p.columns; first += TOGETHER) {
      u8 x[TOGETHER];  // [TOGETHER] words, of which lane l reads the column of bit l
#pragma unroll
      for (int e = 0; e < TOGETHER; ++e) {
        const int column = (word + first + e) * 32 + (lane ^ 7);
        x[e] = column < p.columns ? row[column * p.column_stride] : u8(0);
      }
      compiler_fence();
#pragma unroll
      for (int e = 0; e < TOGETHER; ++e) {
        const u32 found = ballot(x[e] != 0);
        if (lane == first + e) mine = found;
      }
    }
    return mine;
  }
};

// A block's words, [ROWS][WORDS], from registers to rows of memory.
struct PackTile {
  static constexpr int ROWS = 128, WORDS = 8, THREADS = 256, PITCH = WORDS + 1;  // + 1: banks
  static constexpr int BYTES = ROWS * PITCH * 4;

  SR_FN static void write(const PackParams& p, const u32* tile, i64 batch, i64 row0, i64 word0) {
    const i64 words = (p.columns + 31) / 32;
    u32* to = static_cast<u32*>(p.to) + batch * p.rows * p.pitch;
    for (int i = int(threadIdx.x); i < ROWS * WORDS; i += THREADS) {
      const i64 row = row0 + i / WORDS, word = word0 + i % WORDS;
      if (row < p.rows && word < words)
        to[row * p.pitch + word] = tile[i / WORDS * PITCH + i % WORDS];
    }
  }
};

// Kernel: bytes that are closer along the rows. A warp packs a word of each of 128 rows. VECTOR:
// rows come in fours, which can be read at once.
template <bool VECTOR>
struct PackAcross : PackTile {
  SR_FN static void run(const PackParams& p) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const i64 rest = blockIdx.x / p.column_groups, batch = rest / p.row_groups;
    const i64 row0 = rest % p.row_groups * ROWS, word0 = blockIdx.x % p.column_groups * WORDS;
    const i64 column = (word0 + warp) * 32, row = row0 + 4 * lane;
    const int here = p.columns - column < 32 ? int(p.columns - column) : 32;
    const u8* from = static_cast<const u8*>(p.from) + batch * p.batch_stride +
                     row * p.row_stride + column * p.column_stride;
    u32 bits[4] = {};  // [4] rows
    if (here > 0 && row < p.rows) {
      u32 x[32];  // [32] columns, of four rows each
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        const u8* at = from + (j < here ? j : 0) * p.column_stride;
        if constexpr (VECTOR) {
          x[j] = *reinterpret_cast<const u32*>(at);
        } else {
          x[j] = 0;
#pragma unroll
          for (int r = 0; r < 4; ++r)
            if (row + r < p.rows) x[j] |= u32(at[r * p.row_stride] != 0) << 8 * r;
        }
      }
      compiler_fence();
#pragma unroll
      for (int b = 0; b < 4; ++b) {  // byte r of `eight`: eight columns of row r
        u32 eight = 0;
#pragma unroll
        for (int j = 8 * b; j < 8 * b + 8; ++j) eight = eight << 1 | (j < here ? ones(x[j]) : 0u);
#pragma unroll
        for (int r = 0; r < 4; ++r) bits[r] |= (eight >> 8 * r & 0xffu) << 8 * b;
      }
    }
    u32* tile = shared_memory<u32>();  // [ROWS][PITCH]
#pragma unroll
    for (int r = 0; r < 4; ++r) tile[(4 * lane + r) * PITCH + warp] = bits[r];
    __syncthreads();  // between storing the words and reading them
    write(p, tile, batch, row0, word0);
  }
};

// Kernel: bits, of which eight rows share a byte, transposed: rows of `to` are columns of bits in
// memory. A warp transposes four squares of 32 x 32. VECTOR: 16 bytes can be read at once.
template <bool VECTOR>
struct TransposeBits : PackTile {
  SR_FN static void run(const PackParams& p) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const i64 rest = blockIdx.x / p.column_groups, batch = rest / p.row_groups;
    const i64 row0 = rest % p.row_groups * ROWS, word0 = blockIdx.x % p.column_groups * WORDS;
    const i64 column = (word0 + warp) * 32 + (lane ^ 7);
    const u8* from = static_cast<const u8*>(p.from) + batch * p.batch_stride +
                     column * p.column_stride + row0 / 8;
    Pack<u32, 4> x{};  // [4] of 32 rows
    if (column < p.columns) {
      if constexpr (VECTOR) {
        x = *reinterpret_cast<const Pack<u32, 4>*>(from);
      } else {
        for (int e = 0; e < 16; ++e)
          if (row0 + 8 * e < p.rows) x.x[e / 4] |= u32(from[e]) << 8 * (e % 4);
      }
    }
    u32* tile = shared_memory<u32>();  // [ROWS][PITCH]
#pragma unroll
    for (int w = 0; w < 4; ++w) tile[(32 * w + (lane ^ 7)) * PITCH + warp] = transposed(x.x[w]);
    __syncthreads();  // between storing the words and reading them
    write(p, tile, batch, row0, word0);
  }

  // Bit b of lane l's word becomes bit l of lane b's: squares of half the side are exchanged.
  SR_FN static u32 transposed(u32 x) {
    u32 low = 0x0000ffffu;  // bits whose index does not have `side`
#pragma unroll
    for (int side = 16; side > 0; side /= 2) {
      const u32 other = shuffle_xor(x, side);
      x = int(threadIdx.x) & side ? (x & ~low) | (other & ~low) >> side
                                  : (x & low) | (other & low) << side;
      low ^= low << side / 2;
    }
    return x;
  }
};

}  // namespace sr

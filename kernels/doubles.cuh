// Doubles for the kernel of tensor.cuh: the copy engine fills stages, and warps multiply by matrix
// instructions of their own (mma.sync), since there is no warpgroup product of doubles.
//
// A lane supplies row (or column) g = lane / 4 of eight, at two of eight steps of k, 2 c and 2 c + 1
// where c = lane % 4. Which of the rows take the places 0 .. 7 is free: they are permuted such that
// the eight lanes of each phase of a 16-byte read touch all banks of swizzled boxes (boxes.cuh):
//
//     K_MAJOR   a piece is two steps of k of a row: lane (g, c) reads piece c of row g / 2 + g % 2 * 4
//     else      a piece is two rows at one step of k: lane (g, c) reads piece g at 2 c, and at 2 c + 1
#pragma once
#include <hopper.cuh>

namespace sr {

// 128 x 128 words by 4 x 2 warps of 32 x 64. Rows and columns of a lane come as slots: of eight rows
// (or columns), one of each eight. An instruction multiplies two slots of one operand, the tall one,
// by one slot of the other, the flat one; a lane gets place g of the tall slots and places 2 c and
// 2 c + 1 of the flat one. The tall one is B, unless only A has pieces of two rows: their registers
// are then adjacent, as the instruction takes them.
template <bool A_K_MAJOR, bool B_K_MAJOR>
struct DoublesTile {
  static constexpr bool TALL_B = A_K_MAJOR || !B_K_MAJOR;
  static constexpr int BM = 128, BN = 128, TM = TALL_B ? 8 : 4, TN = 64 / TM;
  static constexpr int VN = B_K_MAJOR ? 1 : 2;  // columns of a thread that are adjacent in C
  static constexpr int THREADS = 256;           // of the consumers

  SR_FN static int warp_row() { return int(threadIdx.x) / 64 * 32; }
  SR_FN static int warp_column() { return int(threadIdx.x) / 32 % 2 * 64; }
  // Place g of a slot, in rows or columns from the warp's first.
  template <bool K_MAJOR>
  SR_FN static int place(int slot, int g) {
    return K_MAJOR ? slot * 8 + g / 2 + g % 2 * 4 : slot / 2 * 16 + g * 2 + slot % 2;
  }
  SR_FN static int tall() { return int(threadIdx.x) % 32 / 4; }
  SR_FN static int flat(int e) { return int(threadIdx.x) % 4 * 2 + e; }
  SR_FN static int row(int i) {
    return warp_row() + (TALL_B ? place<A_K_MAJOR>(i / 2, flat(i % 2)) : place<A_K_MAJOR>(i, tall()));
  }
  SR_FN static int column(int j) {
    return warp_column() +
           (TALL_B ? place<B_K_MAJOR>(j, tall()) : place<B_K_MAJOR>(j / 2, flat(j % 2)));
  }
  // Accumulators as instructions have them: [pairs of tall slots][flat slots][2 tall][2 flat].
  SR_FN static constexpr int at(int i, int j) {
    return TALL_B ? ((j / 2 * 4 + i / 2) * 2 + j % 2) * 2 + i % 2
                  : ((i / 2 * 8 + j / 2) * 2 + i % 2) * 2 + j % 2;
  }
};

// A lane's part of slots of an operand, at eight steps of k: reads them from a stage.
template <bool K_MAJOR>
struct DoublesSlots {
  // Bytes from the operand's first in a stage, for slot 0. K_MAJOR: of the first and the last eight
  // steps of k; else of step 2 c and of step 2 c + 1.
  int at[2];

  SR_FN void start(int row) {  // the warp's first
    const int lane = int(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
    if constexpr (K_MAJOR) {
      const int line = g / 2 + g % 2 * 4;
      at[0] = (row + line) * LINE + (c ^ line) * 16;
      at[1] = at[0] ^ 4 * 16;
    } else {  // boxes of 16 rows x 16 steps of k
      at[0] = row * LINE + 2 * c * LINE + (g ^ 2 * c) * 16;
      at[1] = (at[0] ^ 16) + LINE;
    }
  }
  // N slots from the first on, of the first or last eight steps (`half`) of a tile of 16.
  template <int N>
  SR_FN void load(double (&x)[N][2], const u8* operand, int first, int half) const {
    using Piece = Pack<double, 2>;
    if constexpr (K_MAJOR) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const Piece piece =
            *reinterpret_cast<const Piece*>(operand + at[half] + (first + n) * (8 * LINE));
        x[n][0] = piece.x[0];
        x[n][1] = piece.x[1];
      }
    } else {
#pragma unroll
      for (int n = 0; n < N; n += 2)
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const Piece piece = *reinterpret_cast<const Piece*>(
              operand + at[s] + (first + n) * (8 * LINE) + half * (8 * LINE));
          x[n][s] = piece.x[0];
          x[n + 1][s] = piece.x[1];
        }
    }
  }
};

// A warp's products of a tile of k, in four parts: eight steps of k by half of the columns. The
// fragments of the next part are loaded before the instructions of this one.
template <bool A_K_MAJOR, bool B_K_MAJOR>
struct DoublesProduct {
  using Tile = DoublesTile<A_K_MAJOR, B_K_MAJOR>;
  static constexpr int PARTS = 4, COLUMNS = 4;  // slots of columns of a part
  DoublesSlots<A_K_MAJOR> left;
  DoublesSlots<B_K_MAJOR> right;
  double a[2][4][2];        // [2]: of eight steps of k; [4 slots][2 steps of k]
  double b[2][COLUMNS][2];  // [2]: of this part and the next; [4 slots][2 steps of k]

  SR_FN void start() {
    left.start(Tile::warp_row());
    right.start(Tile::warp_column());
  }
  SR_FN void load(int part, const u8* as, const u8* bs) {
    if (part % 2 == 0) left.load(a[part / 2], as, 0, part / 2);
    right.load(b[part % 2], bs, part % 2 * COLUMNS, part / 2);
  }
  SR_FN void multiply(double (&d)[Tile::BN / 2], int part) {
    const int first = part % 2 * COLUMNS;  // slot of columns
    const auto& tall = Tile::TALL_B ? b[part % 2] : a[part / 2];  // [4][2]
    const auto& flat = Tile::TALL_B ? a[part / 2] : b[part % 2];  // [4][2]
#pragma unroll
    for (int t = 0; t < 4; t += 2)
#pragma unroll
      for (int f = 0; f < 4; ++f) {
        const int pair = Tile::TALL_B ? (first + t) / 2 * 4 + f : t / 2 * 8 + first + f;
        mma(*reinterpret_cast<double(*)[4]>(d + pair * 4), tall[t], tall[t + 1], flat[f]);
      }
  }
};

}  // namespace sr

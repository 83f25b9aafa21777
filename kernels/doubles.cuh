// Doubles for the kernel of tensor.cuh: the copy engine fills stages, and warps multiply by matrix
// instructions of their own (mma.sync), since there is no warpgroup product of doubles.
//
// A lane supplies row (or column) g = lane / 4 of eight, at two of eight steps of k, for its
// c = lane % 4. An instruction takes adjacent registers: of the tall operand two rows at one step,
// of the flat one two steps of a row. A lane reads pieces of 16 bytes where they have these two,
// else words. Which rows and steps take the places g and c is free: they are permuted such that
// lanes that read at once (eight pieces, sixteen words) touch all banks of boxes (boxes.cuh):
//
//     K_MAJOR         lane (g, c) reads piece c, of steps 2 c and 2 c + 1, of row g / 2 + g % 2 * 4
//     K_MAJOR, WORDS  lane (g, c) reads steps c and c + 4 of row g % 4 * 2 + g / 4
//     else            lane (g, c) reads piece g, of two rows, at steps 2 c and 2 c + 1
//     WORDS           lane (g, c) reads row g at steps 2 c and 2 c + 1
#pragma once
#include <hopper.cuh>

namespace sr {

// A lane's part of an operand, at eight steps of k: reads it from a stage. Its rows (or columns)
// are counted in slots of eight, of which a lane has one.
template <bool K_MAJOR, bool WORDS>
struct DoublesSlots {
  // Bytes from the operand's first in a stage, for slot 0 and the lane's first and second step of
  // k, or (pieces along k) for the first and the last eight steps of a tile.
  int at[2];

  // Place g of a slot, in rows from the warp's first.
  SR_FN static int place(int slot, int g) {
    if constexpr (K_MAJOR) return slot * 8 + (WORDS ? g % 4 * 2 + g / 4 : g / 2 + g % 2 * 4);
    else return WORDS ? slot * 8 + g : slot / 2 * 16 + g * 2 + slot % 2;
  }
  SR_FN void start(int row) {  // the warp's first
    const int lane = int(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
    if constexpr (K_MAJOR) {
      const int line = place(0, g), piece = WORDS ? c / 2 : c;
      at[0] = (row + line) * LINE + (piece ^ line) * 16 + (WORDS ? c % 2 * 8 : 0);
      at[1] = at[0] ^ (WORDS ? 2 : 4) * 16;
    } else {  // boxes of 16 rows x 16 steps of k
      const int piece = WORDS ? g / 2 : g;
      at[0] = row * LINE + 2 * c * LINE + (piece ^ 2 * c) * 16 + (WORDS ? g % 2 * 8 : 0);
      at[1] = (at[0] ^ 16) + LINE;
    }
  }
  // N slots from the first on, of the first or last eight steps (`half`) of a tile of 16.
  template <int N>
  SR_FN void load(double (&x)[N][2], const u8* operand, int first, int half) const {
    using Piece = Pack<double, 2>;
    static_assert(N % 2 == 0, "a piece, or a line, has rows of two slots");
    if constexpr (WORDS) {
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const int bytes = at[s] ^ (K_MAJOR ? half : n % 2) * 64;
          const int box = K_MAJOR ? first + n : first + n / 2 * 2 + half;
          x[n][s] = *reinterpret_cast<const double*>(operand + bytes + box * (8 * LINE));
        }
    } else if constexpr (K_MAJOR) {
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
          const Piece piece =
              *reinterpret_cast<const Piece*>(operand + at[s] + (first + n + half) * (8 * LINE));
          x[n][s] = piece.x[0];
          x[n + 1][s] = piece.x[1];
        }
    }
  }
};

// 128 x BN words by 4 x 2 warps of 32 x BN / 2. An instruction multiplies two slots of one operand,
// the tall one, by one slot of the other, the flat one; a lane gets place g of the tall slots and
// places 2 c and 2 c + 1 of the flat one. The tall one is B, unless only A has pieces of two rows.
template <bool A_K_MAJOR, bool B_K_MAJOR, int BN_ = 128>
struct DoublesTile {
  static constexpr bool TALL_B = A_K_MAJOR || !B_K_MAJOR;
  using Left = DoublesSlots<A_K_MAJOR, A_K_MAJOR == B_K_MAJOR>;
  using Right = DoublesSlots<B_K_MAJOR, A_K_MAJOR && B_K_MAJOR>;
  static constexpr int BM = 128, BN = BN_;
  static constexpr int SLOTS = BN / 16;  // of a warp's columns; it has 4 of rows
  static constexpr int TM = TALL_B ? 8 : 4, TN = TALL_B ? SLOTS : 2 * SLOTS;
  static constexpr int VN = B_K_MAJOR ? 1 : 2;  // columns of a thread that are adjacent in C
  static constexpr int THREADS = 256;           // of the consumers

  SR_FN static int warp_row() { return int(threadIdx.x) / 64 * 32; }
  SR_FN static int warp_column() { return int(threadIdx.x) / 32 % 2 * (BN / 2); }
  SR_FN static int tall() { return int(threadIdx.x) % 32 / 4; }
  SR_FN static int flat(int e) { return int(threadIdx.x) % 4 * 2 + e; }
  SR_FN static int row(int i) {
    return warp_row() + (TALL_B ? Left::place(i / 2, flat(i % 2)) : Left::place(i, tall()));
  }
  SR_FN static int column(int j) {
    return warp_column() + (TALL_B ? Right::place(j, tall()) : Right::place(j / 2, flat(j % 2)));
  }
  // Accumulators as instructions have them: [pairs of tall slots][flat slots][2 tall][2 flat].
  SR_FN static constexpr int at(int i, int j) {
    return TALL_B ? ((j / 2 * 4 + i / 2) * 2 + j % 2) * 2 + i % 2
                  : ((i / 2 * SLOTS + j / 2) * 2 + i % 2) * 2 + j % 2;
  }
};

// A warp's products of a tile of k, in parts: eight steps of k by four slots of columns. The
// fragments of the next part are loaded before the instructions of this one.
template <bool A_K_MAJOR, bool B_K_MAJOR, int BN>
struct DoublesProduct {
  using Tile = DoublesTile<A_K_MAJOR, B_K_MAJOR, BN>;
  static constexpr int COLUMNS = 4, GROUPS = Tile::SLOTS / COLUMNS;  // slots of columns of a part
  static constexpr int PARTS = 2 * GROUPS;
  static_assert(GROUPS * COLUMNS == Tile::SLOTS, "parts fill a warp's columns");
  typename Tile::Left left;
  typename Tile::Right right;
  double a[2][4][2];        // [2]: of eight steps of k; [4 slots][2 steps of k]
  double b[2][COLUMNS][2];  // [2]: of this part and the next; [4 slots][2 steps of k]

  SR_FN void start() {
    left.start(Tile::warp_row());
    right.start(Tile::warp_column());
  }
  SR_FN void load(int part, const u8* as, const u8* bs) {
    if (part % GROUPS == 0) left.load(a[part / GROUPS], as, 0, part / GROUPS);
    right.load(b[part % 2], bs, part % GROUPS * COLUMNS, part / GROUPS);
  }
  SR_FN void multiply(double (&d)[Tile::BN / 2], int part) {
    const int first = part % GROUPS * COLUMNS;  // slot of columns
    const auto& tall = Tile::TALL_B ? b[part % 2] : a[part / GROUPS];  // [4][2]
    const auto& flat = Tile::TALL_B ? a[part / GROUPS] : b[part % 2];  // [4][2]
#pragma unroll
    for (int t = 0; t < 4; t += 2)
#pragma unroll
      for (int f = 0; f < 4; ++f) {
        const int pair = Tile::TALL_B ? (first + t) / 2 * 4 + f : t / 2 * Tile::SLOTS + first + f;
        mma(*reinterpret_cast<double(*)[4]>(d + pair * 4), tall[t], tall[t + 1], flat[f]);
      }
  }
};

}  // namespace sr

// The product over plus-times by the matrix instructions of a warp (mma.sync): step policy, tile
// and multiplier for product.cuh.
//
// An instruction multiplies 16 x K by K x 8. Lane l supplies A's rows l / 4 and l / 4 + 8 and B's
// column l / 4, at the steps of k that follow from l % 4, and receives rows l / 4 and l / 4 + 8 and
// columns l % 4 * 2 and l % 4 * 2 + 1 of the product. Which rows, columns and steps of k of a tile
// take these places is free: they are permuted such that a lane reads four adjacent rows (or
// columns) of shared memory at once, without bank conflicts.
#pragma once
#include "multiplier.cuh"

namespace sr {

// Kind: Halves, Bfloats or Tf32 (types.cuh). Words in shared memory are floats; the multiplier
// converts them to what the instruction takes.
template <class A, class Kind_>
struct Matrix {
  using Algebra = A;
  using Kind = Kind_;
  using Word = float;
  using Left = typename A::Storage;
  using Right = typename A::Storage;
  static constexpr int COLUMNS = 1, ELEMENTS = 1, DEPTH = Kind::K;
  static constexpr bool PLAIN = A::PLAIN, RIGHT_PLAIN = PLAIN, MIXED = false, SHORT = true;

  SR_FN static Word start() { return 0.0f; }
  SR_FN static Word left(Left x) { return A::decode(x); }
  SR_FN static Word right(const Right* x) { return A::decode(x[0]); }
  SR_FN static Word join(Word x, Word y) { return x + y; }
  SR_FN static float out(Word x, int) { return x; }
};
template <class A>
using MatrixHalves = Matrix<A, Halves>;
template <class A>
using MatrixBfloats = Matrix<A, Bfloats>;
template <class A>
using MatrixTf32 = Matrix<A, Tf32>;

// A Tile whose lanes lie where the instructions have them. TM x TN accumulators a lane: TM rows of
// C by TN columns, from TM / 2 x TN / 2 instructions.
template <int BM_, int BN_, int BK_, int TM_, int TN_, int LM_>
struct MatrixTile : Tile<BM_, BN_, BK_, TM_, TN_, LM_> {
  using Base = Tile<BM_, BN_, BK_, TM_, TN_, LM_>;
  static constexpr int VM = 4, VN = 8;
  static constexpr int PAD = 8;  // a read of four steps of k by eight lanes touches all banks once
  static_assert(LM_ == 8, "an instruction has 8 lanes along the rows");
  static_assert(TM_ % 4 == 0, "a lane reads four rows at once");
  static_assert(TN_ % 8 == 0, "a lane reads four columns at once, and gets two for each");

  // Rows of shared memory are swizzled by k: eight lanes that write four steps of k of a row at
  // once touch all banks.
  static constexpr bool SWIZZLED = true;
  SR_FN static int swizzle(int row, int k) { return row ^ k / 4 % 8 * 4; }
  SR_FN static int warp() { return int(threadIdx.x) / 32; }
  SR_FN static int high() { return int(threadIdx.x) % 32 / 4; }  // row of A, column of B
  SR_FN static int low() { return int(threadIdx.x) % 4; }        // step of k, columns of C
  SR_FN static int row(int i) {
    return warp() / Base::WARPS_N * (TM_ * 8) + i / 4 * 32 + high() * 4 + i % 4;
  }
  SR_FN static int column(int j) {
    return warp() % Base::WARPS_N * (TN_ * 4) + j / 8 * 32 + low() * 8 + j % 8;
  }
};

// Two floats, which are exact in 16 bits, as a word of the instruction.
SR_FN u32 packed(float x, float y, Halves) {
  return u32(to_half(x).bits) | u32(to_half(y).bits) << 16;
}
SR_FN u32 packed(float x, float y, Bfloats) {
  return bits_as<u32>(x) >> 16 | (bits_as<u32>(y) & 0xffff0000u);
}

// A lane's part of K steps of k: SLOTS = K / 4 of them, four apart, for each row of A and column of
// B. DEPTH == 1 (the remainder): one step of k in the first slot of lanes with low() == 0, else
// zeros.
template <class A, class Kind, class Tile, int DEPTH>
struct Fragment<Matrix<A, Kind>, Tile, DEPTH> {
  static constexpr int SLOTS = Kind::K / 4, COLUMNS = Tile::TN / 2;
  float a[Tile::TM][SLOTS];  // [TM][SLOTS]
  float b[COLUMNS][SLOTS];   // [TN / 2][SLOTS]

  template <int LDA, int LDB>
  SR_FN void load(const float* as, const float* bs, int k) {
    as -= Tile::high() * 4;  // the warp's first row and column, from this lane's
    bs -= Tile::low() * 8;
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
      const int at = DEPTH == 1 ? k : k + Tile::low() + 4 * s;
      const int first = Tile::swizzle(Tile::high() * 4, DEPTH == 1 ? k : k + 4 * s);
      load_line<Tile::TM>(a, as + at * LDA + first, s);
      load_line<COLUMNS>(b, bs + at * LDB + first, s);
    }
    if constexpr (DEPTH == 1) {
#pragma unroll
      for (int s = 0; s < SLOTS; ++s) {
        const bool other = s > 0 || Tile::low() > 0;
#pragma unroll
        for (int i = 0; i < Tile::TM; ++i) a[i][s] = other ? 0.0f : a[i][s];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) b[j][s] = other ? 0.0f : b[j][s];
      }
    }
  }
  // N rows or columns of slot s, in vectors of four that are 8 lanes apart.
  template <int N>
  SR_FN static void load_line(float (&x)[N][SLOTS], const float* from, int s) {
#pragma unroll
    for (int n = 0; n < N; n += 4) {
      const auto four = *reinterpret_cast<const Pack<float, 4>*>(from + n * 8);
#pragma unroll
      for (int q = 0; q < 4; ++q) x[n + q][s] = four.x[q];
    }
  }
};

template <class A, class Kind, class Tile>
struct Multiplier<Matrix<A, Kind>, Tile> {
  static constexpr int TM = Tile::TM, TN = Tile::TN, SLOTS = Kind::K / 4;
  float acc[TM][TN];  // [TM][TN]

  SR_FN void clear() {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[i][j] = 0.0f;
  }

  template <int DEPTH>
  SR_FN void take(const Fragment<Matrix<A, Kind>, Tile, DEPTH>& x, int) {
    u32 a[TM][2], b[TN / 2][2];  // [TM][2] and [TN / 2][2]: lower and upper half of the steps of k
    words(a, x.a);
    words(b, x.b);
#pragma unroll
    for (int i = 0; i < TM; i += 2)
#pragma unroll
      for (int n = 0; n < TN / 2; ++n) {
        const int j = n / 4 * 8 + n % 4;  // the lane's columns j and j + 4
        float d[4] = {acc[i][j], acc[i][j + 4], acc[i + 1][j], acc[i + 1][j + 4]};
        mma<Kind>(d, a[i], a[i + 1], b[n]);
        acc[i][j] = d[0], acc[i][j + 4] = d[1], acc[i + 1][j] = d[2], acc[i + 1][j + 4] = d[3];
      }
  }

  // Floats as words of the instruction, converted to Kind.
  template <int N>
  SR_FN static void words(u32 (&to)[N][2], const float (&x)[N][SLOTS]) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (SLOTS == 2) to[n][half] = bits_as<u32>(to_tf32(x[n][half]));
        else to[n][half] = packed(x[n][2 * half], x[n][2 * half + 1], Kind{});
      }
  }
};

}  // namespace sr

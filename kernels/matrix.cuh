// The product over plus-times by the matrix instructions of a warp: a multiplier for product.cuh.
//
// An instruction multiplies 16 x K by K x 8. Of lane l it wants A's rows l / 4 and l / 4 + 8, B's
// column l / 4 and some steps of k that follow from l % 4; it gives rows l / 4 and l / 4 + 8 and
// columns l % 4 * 2 and + 1. Which rows, columns and steps of a tile these are is free, so they are
// chosen such that a lane reads four rows, or columns, of shared memory at once, without bank
// conflicts.
#pragma once
#include "multiplier.cuh"

namespace sr {

template <class A, class Kind_>
struct Matrix {
  using Algebra = A;
  using Kind = Kind_;
  using Word = float;
  using Left = typename A::Storage;
  using Right = typename A::Storage;
  static constexpr int COLUMNS = 1, ELEMENTS = 1, DEPTH = Kind::K;
  static constexpr bool PLAIN = A::PLAIN, MIXED = false, SHORT = true;

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

// As Tile, with the lanes where the instructions have them.
template <int BM_, int BN_, int BK_, int TM_, int TN_, int LM_>
struct MatrixTile : Tile<BM_, BN_, BK_, TM_, TN_, LM_> {
  using Base = Tile<BM_, BN_, BK_, TM_, TN_, LM_>;
  static constexpr int VM = 4, VN = 8;
  static constexpr int PAD = 8;  // four steps of k by eight lanes of 16 bytes lie in all banks
  static_assert(LM_ == 8 && TM_ % 4 == 0 && TN_ % 8 == 0, "groups of four 8-row fragments");

  // Where a row lies: words of k are written four steps at once by eight lanes, to all banks.
  static constexpr bool SWIZZLED = true;
  SR_FN static int place(int row, int k) { return row ^ k / 4 % 8 * 4; }
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

// Two floats as what an instruction takes of 16-bit operands.
SR_FN u32 both(float x, float y, Halves) {
  return u32(to_half(x).bits) | u32(to_half(y).bits) << 16;
}
SR_FN u32 both(float x, float y, Bfloats) {  // which they are
  return bits_as<u32>(x) >> 16 | (bits_as<u32>(y) & 0xffff0000u);
}

// Of A's rows and B's columns, K / 4 steps of k that lie four apart.
template <class A, class Kind, class Tile, int DEPTH>
struct Fragment<Matrix<A, Kind>, Tile, DEPTH> {
  static constexpr int SLOTS = Kind::K / 4, COLUMNS = Tile::TN / 2;
  float a[Tile::TM][SLOTS];  // [TM][SLOTS]
  float b[COLUMNS][SLOTS];   // [TN / 2][SLOTS]

  template <int LDA, int LDB>
  SR_FN void load(const float* as, const float* bs, int k) {
    as -= Tile::high() * 4;  // the first of the warp
    bs -= Tile::low() * 8;
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
      const int at = DEPTH == 1 ? k : k + Tile::low() + 4 * s;
      const int place = Tile::place(Tile::high() * 4, DEPTH == 1 ? k : k + 4 * s);
      line<Tile::TM>(a, as + at * LDA + place, s);
      line<COLUMNS>(b, bs + at * LDB + place, s);
    }
    if constexpr (DEPTH == 1) {  // one step of k, in the first lane's first slot
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
  template <int N>
  SR_FN static void line(float (&x)[N][SLOTS], const float* from, int s) {
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
    u32 a[TM][2], b[TN / 2][2];  // the lower and the upper half of the steps of k
    words(a, x.a);
    words(b, x.b);
#pragma unroll
    for (int i = 0; i < TM; i += 2)
#pragma unroll
      for (int n = 0; n < TN / 2; ++n) {
        const int j = n / 4 * 8 + n % 4;  // and four columns on
        float d[4] = {acc[i][j], acc[i][j + 4], acc[i + 1][j], acc[i + 1][j + 4]};
        mma<Kind>(d, a[i], a[i + 1], b[n]);
        acc[i][j] = d[0], acc[i][j + 4] = d[1], acc[i + 1][j] = d[2], acc[i + 1][j + 4] = d[3];
      }
  }

  template <int N>
  SR_FN static void words(u32 (&to)[N][2], const float (&x)[N][SLOTS]) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (SLOTS == 2) to[n][half] = bits_as<u32>(to_tf32(x[n][half]));
        else to[n][half] = both(x[n][2 * half], x[n][2 * half + 1], Kind{});
      }
  }
};

}  // namespace sr

// The product over plus-times by the matrix instructions of a warp (mma.sync): step policy, tile
// and multiplier for product.cuh.
//
// An instruction multiplies 16 x K by K x 8. Lane l supplies A's rows l / 4 and l / 4 + 8 and B's
// column l / 4, at the steps of k that follow from l % 4, and receives rows l / 4 and l / 4 + 8 and
// columns l % 4 * 2 and l % 4 * 2 + 1 of the product. Which rows, columns and steps of k of a tile
// take these places is free: they are permuted such that a lane reads adjacent rows (or columns) of
// shared memory at once, 16 bytes of them, without bank conflicts.
#pragma once
#include "multiplier.cuh"

namespace sr {

// Kind: Halves, Bfloats, Tf32 or Doubles (types.cuh). Words in shared memory are floats or doubles;
// the multiplier converts floats to what the instruction takes.
template <class A, class Kind_>
struct Matrix {
  using Algebra = A;
  using Kind = Kind_;
  using Word = typename Kind::Sum;
  using Left = typename A::Storage;
  using Right = typename A::Storage;
  static constexpr int COLUMNS = 1, ELEMENTS = 1, DEPTH = Kind::K;
  static constexpr bool PLAIN = A::PLAIN, RIGHT_PLAIN = PLAIN, MIXED = false, SHORT = true;

  SR_FN static Word start() { return 0; }
  SR_FN static Word left(Left x) { return A::decode(x); }
  SR_FN static Word right(const Right* x) { return A::decode(x[0]); }
  SR_FN static Word join(Word x, Word y) { return x + y; }
  SR_FN static typename A::Compute out(Word x, int) { return x; }
};
template <class A>
using MatrixHalves = Matrix<A, Halves>;
template <class A>
using MatrixBfloats = Matrix<A, Bfloats>;
template <class A>
using MatrixTf32 = Matrix<A, Tf32>;
template <class A>
using MatrixDoubles = Matrix<A, Doubles>;

// A Tile whose lanes lie where the instructions have them. TM x TN accumulators a lane: TM rows of
// C by TN columns, from TM / 2 x TN / 2 instructions. WORD: bytes of a word.
template <int BM_, int BN_, int BK_, int TM_, int TN_, int LM_, int STAGES_, int WORD>
struct MatrixTile : Tile<BM_, BN_, BK_, TM_, TN_, LM_, false, STAGES_> {
  using Base = Tile<BM_, BN_, BK_, TM_, TN_, LM_, false, STAGES_>;
  static constexpr int VM = 16 / WORD, VN = 2 * VM;
  static constexpr int PAD = 2 * VM;  // a read of four steps of k by eight lanes: all banks once
  static_assert(LM_ == 8, "an instruction has 8 lanes along the rows");
  static_assert(TM_ % VM == 0, "a lane reads VM rows at once");
  static_assert(TN_ % VN == 0, "a lane reads VM columns at once, and gets two for each");

  // Rows of shared memory are swizzled by k: lanes that write adjacent steps of k of a row at once
  // touch all banks.
  static constexpr int SWIZZLED = 8 * VM;
  SR_FN static int swizzle(int row, int k) { return row ^ k / 4 % 8 * VM; }
  SR_FN static int warp() { return int(threadIdx.x) / 32; }
  SR_FN static int high() { return int(threadIdx.x) % 32 / 4; }  // row of A, column of B
  SR_FN static int low() { return int(threadIdx.x) % 4; }        // step of k, columns of C
  SR_FN static int row(int i) {
    return warp() / Base::WARPS_N * (TM_ * 8) + i / VM * (8 * VM) + high() * VM + i % VM;
  }
  SR_FN static int column(int j) {
    return warp() % Base::WARPS_N * (TN_ * 4) + j / VN * (4 * VN) + low() * VN + j % VN;
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
  using Word = typename Kind::Sum;
  static constexpr int SLOTS = Kind::K / 4, COLUMNS = Tile::TN / 2, V = Tile::VM;
  Word a[Tile::TM][SLOTS];  // [TM][SLOTS]
  Word b[COLUMNS][SLOTS];   // [TN / 2][SLOTS]

  template <int LDA, int LDB>
  SR_FN void load(const Word* as, const Word* bs, int k) {
    as -= Tile::high() * V;  // the warp's first row and column, from this lane's
    bs -= Tile::low() * Tile::VN;
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
      const int at = DEPTH == 1 ? k : k + Tile::low() + 4 * s;
      const int first = Tile::swizzle(Tile::high() * V, DEPTH == 1 ? k : k + 4 * s);
      load_line<Tile::TM>(a, as + at * LDA + first, s);
      load_line<COLUMNS>(b, bs + at * LDB + first, s);
    }
    if constexpr (DEPTH == 1) {
#pragma unroll
      for (int s = 0; s < SLOTS; ++s) {
        const bool other = s > 0 || Tile::low() > 0;
#pragma unroll
        for (int i = 0; i < Tile::TM; ++i) a[i][s] = other ? Word(0) : a[i][s];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) b[j][s] = other ? Word(0) : b[j][s];
      }
    }
  }
  // N rows or columns of slot s, in vectors of V that are 8 lanes apart.
  template <int N>
  SR_FN static void load_line(Word (&x)[N][SLOTS], const Word* from, int s) {
#pragma unroll
    for (int n = 0; n < N; n += V) {
      const auto group = *reinterpret_cast<const Pack<Word, V>*>(from + n * 8);  // [V]
#pragma unroll
      for (int q = 0; q < V; ++q) x[n + q][s] = group.x[q];
    }
  }
};

template <class A, class Kind, class Tile>
struct Multiplier<Matrix<A, Kind>, Tile> {
  using Word = typename Kind::Sum;
  static constexpr int TM = Tile::TM, TN = Tile::TN, SLOTS = Kind::K / 4, V = Tile::VM;
  Word acc[TM][TN];  // [TM][TN]

  SR_FN void clear() {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[i][j] = 0;
  }

  template <int DEPTH>
  SR_FN void take(const Fragment<Matrix<A, Kind>, Tile, DEPTH>& x, int) {
    if constexpr (sizeof(Word) == 8) {
      products(x.a, x.b);
    } else {
      u32 a[TM][2], b[TN / 2][2];  // lower and upper half of the steps of k
      words(a, x.a);
      words(b, x.b);
      products(a, b);
    }
  }

  template <int N, class Operand>
  SR_FN void products(const Operand (&a)[TM][N], const Operand (&b)[TN / 2][N]) {
#pragma unroll
    for (int i = 0; i < TM; i += 2)
#pragma unroll
      for (int n = 0; n < TN / 2; ++n) {
        const int j = n / V * (2 * V) + n % V;  // the lane's columns j and j + V
        Word d[4] = {acc[i][j], acc[i][j + V], acc[i + 1][j], acc[i + 1][j + V]};
        if constexpr (sizeof(Word) == 8) mma(d, a[i][0], a[i + 1][0], b[n][0]);
        else mma<Kind>(d, a[i], a[i + 1], b[n]);
        acc[i][j] = d[0], acc[i][j + V] = d[1], acc[i + 1][j] = d[2], acc[i + 1][j + V] = d[3];
      }
  }

  SR_FN void finish(int) {}

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

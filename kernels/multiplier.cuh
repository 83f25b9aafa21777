// The arithmetic: a tile of accumulators in registers, fed from shared memory. It knows neither
// where operands come from nor where results go.
#pragma once
#include "steps.cuh"
#include "tile.cuh"

namespace sr {

// A thread's operands for DEPTH steps of k: Step::DEPTH in the main loop, 1 in the remainder.
template <class Step, class Tile, int DEPTH>
struct Fragment {
  using Word = typename Step::Word;
  Word a[Tile::TM][DEPTH];  // [TM][DEPTH]
  Word b[Tile::TN][DEPTH];  // [TN][DEPTH]

  // Steps k to k + DEPTH - 1 of a stage. as: [BK][LDA] and bs: [BK][LDB] in shared memory, from
  // this thread's first row and column on.
  template <int LDA, int LDB>
  SR_FN void load(const Word* as, const Word* bs, int k) {
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
      load_line<Tile::TM, Tile::VM, Tile::LM>(a, as + (k + d) * LDA, d);
      load_line<Tile::TN, Tile::VN, Tile::LN>(b, bs + (k + d) * LDB, d);
    }
  }

  // T words of one step of k, in vectors of V words that are V * LANES apart (at most 16 bytes
  // each).
  template <int T, int V, int LANES>
  SR_FN static void load_line(Word (&x)[T][DEPTH], const Word* from, int d) {
    constexpr int N = V * sizeof(Word) > 16 ? 16 / sizeof(Word) : V;
    static_assert(T % N == 0, "vectors fill a thread's rows");
#pragma unroll
    for (int t = 0; t < T; t += N) {
      const Word* at = from + t / V * V * LANES + t % V;
      const Pack<Word, N> group = *reinterpret_cast<const Pack<Word, N>*>(at);  // [N]
#pragma unroll
      for (int q = 0; q < N; ++q) x[t + q][d] = group.x[q];
    }
  }
};

template <class Step, class Tile>
struct Multiplier {
  static_assert(CheckArithmetic<Step>::DONE);
  using Word = typename Step::Word;
  static constexpr int TM = Tile::TM, TN = Tile::TN;
  // Multiply-adds read three registers, but two banks of registers give one each in a cycle: what
  // counts is which of them follow each other. This order had the fewest conflicts in machine code
  // (bench/banks.py), and was the fastest.
  static constexpr bool BY_COLUMNS = Step::SHORT && !Step::MIXED && Step::DEPTH == 1 &&
                                     Step::COLUMNS == 1 && sizeof(Word) == 4 && TN == 16;
  Word acc[TM][TN];  // [TM][TN]

  SR_FN void clear() {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[i][j] = Step::start();
  }

  // The outer product of a fragment: acc[i][j] ⊕= a[i] ⊗ b[j]. `unit` is 1 (Step::take_mixed).
  template <int DEPTH>
  SR_FN void take(const Fragment<Step, Tile, DEPTH>& x, int unit) {
    constexpr int OUTER = BY_COLUMNS ? TN : TM, INNER = BY_COLUMNS ? TM : TN;
#pragma unroll
    for (int o = 0; o < OUTER; ++o)
#pragma unroll
      for (int s = 0; s < INNER; ++s) {
        const int back = o % 2 ? INNER - 1 - s : s;  // serpentine order: one operand is reused
        const int i = BY_COLUMNS ? back : o;
        const int j = BY_COLUMNS ? o / 4 * 4 + o % 2 * 2 + o / 2 % 2 : back;  // 0, 2, 1, 3, 4, ...
        if constexpr (DEPTH < Step::DEPTH) Step::one(acc[i][j], x.a[i][0], x.b[j][0]);
        else if constexpr (!Step::MIXED) Step::take(acc[i][j], x.a[i], x.b[j]);
        else if ((i + j) % 2) Step::take_mixed(acc[i][j], x.a[i], x.b[j], unit);
        else Step::take(acc[i][j], x.a[i], x.b[j]);
      }
  }

  // Vectors of C are stored from adjacent registers, so acc[i][j] would lie in the bank of b[j]. An
  // OR with zero, which `unit` - 1 is, moves them to others after the loop.
  SR_FN void finish(int unit) {
    if constexpr (BY_COLUMNS) {
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j)
          acc[i][j] = bits_as<Word>(bits_as<u32>(acc[i][j]) | u32(unit - 1));
    }
  }
};

}  // namespace sr

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
    if constexpr (Tile::PAIRS) {
      const int odd = DEPTH == 1 ? k % 2 : 0;
      load_pairs<Tile::TM, Tile::LM>(a, as + (k - odd) * LDA, odd);
      load_pairs<Tile::TN, Tile::LN>(b, bs + (k - odd) * LDB, 1 - odd);
    } else {
#pragma unroll
      for (int d = 0; d < DEPTH; ++d) {
        load_line<Tile::TM, Tile::VM, Tile::LM>(a, as + (k + d) * LDA, d);
        load_line<Tile::TN, Tile::VN, Tile::LN>(b, bs + (k + d) * LDB, d);
      }
    }
  }

  // T words of two steps of k, of which the first is at `phase` of a pair; or of one.
  template <int T, int LANES>
  SR_FN static void load_pairs(Word (&x)[T][DEPTH], const Word* from, int phase) {
#pragma unroll
    for (int t = 0; t < T; t += 2) {
      const Word* at = from + t * (2 * LANES);
      if constexpr (DEPTH == 1) {
        x[t][0] = at[phase];
        x[t + 1][0] = at[phase + 2];
      } else {
        const Pack<Word, 4> group = *reinterpret_cast<const Pack<Word, 4>*>(at);  // [2][2]
#pragma unroll
        for (int d = 0; d < 2; ++d) {
          x[t][d] = group.x[phase ^ d];
          x[t + 1][d] = group.x[2 + (phase ^ d)];
        }
      }
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
  // counts is which of them follow each other. This order has few conflicts in machine code, and no
  // loads side by side (bench/banks.py); of seven orders measured it was the fastest, unless the loop
  // has no copies (IN_ORDER).
  static constexpr bool BY_COLUMNS = Step::SHORT && !Step::MIXED && !Step::TWO &&
                                     Step::DEPTH == 1 && Step::COLUMNS == 1 &&
                                     sizeof(Word) == 4 && TN == 16;
  static_assert(!Tile::PAIRS || (Step::DEPTH == 2 && sizeof(Word) == 4),
                "a k step takes the two steps of k of a pair, and 16 bytes hold two of these");
  Word acc[TM][TN];  // [TM][TN]

  SR_FN void clear() {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[i][j] = Step::start();
  }

  // The outer product of a fragment: acc[i][j] ⊕= a[i] ⊗ b[j], by rows, or by columns if
  // Step::DOWN. Serpentine order: one operand is reused from line to line. `unit` is 1
  // (Step::take_mixed).
  template <int DEPTH>
  SR_FN void take(const Fragment<Step, Tile, DEPTH>& x, int unit) {
    constexpr bool DOWN = Step::DOWN || BY_COLUMNS;
    constexpr int LINES = DOWN ? TN : TM, LENGTH = DOWN ? TM : TN;
#pragma unroll
    for (int o = 0; o < LINES; ++o)
#pragma unroll
      for (int s = 0; s < LENGTH; ++s) {
        const int line =  // 0, 2, 1, 3, 4, ...
            BY_COLUMNS && !Tile::IN_ORDER ? o / 4 * 4 + o % 2 * 2 + o / 2 % 2 : o;
        const int along = o % 2 ? LENGTH - 1 - s : s;
        const int i = DOWN ? along : line, j = DOWN ? line : along;
        if constexpr (DEPTH == Step::DEPTH && Step::TWO) {
          static_assert(TN % 2 == 0, "columns are taken two at once");
          const int l = j / 2 * 2;
          if ((DOWN ? line : s) % 2 == 0)
            Step::take_two(acc[i][l], acc[i][l + 1], x.a[i], x.b[l], x.b[l + 1]);
        } else if constexpr (DEPTH < Step::DEPTH) {
          Step::one(acc[i][j], x.a[i][0], x.b[j][0]);
        } else if constexpr (!Step::MIXED) {
          Step::take(acc[i][j], x.a[i], x.b[j]);
        } else if ((i + j) % 2) {
          Step::take_mixed(acc[i][j], x.a[i], x.b[j], unit);
        } else {
          Step::take(acc[i][j], x.a[i], x.b[j]);
        }
      }
  }

  // Vectors of C are stored from adjacent registers, so acc[i][j] would lie in the bank of b[j]. An
  // Vectors of C are stored from adjacent registers, so acc[i][j] would lie in the bank of b[j]. An
  // OR with zero, which `unit` - 1 is, moves them to others after the loop. Where ⊕ chooses, the
  // compiler finds banks without conflicts by itself.
  static constexpr bool MOVES =
      BY_COLUMNS || (!Step::SHORT && !Step::Algebra::SELECTS && sizeof(Word) == 4 &&
                     Step::COLUMNS == 1);
  SR_FN void finish(int unit) {
    if constexpr (MOVES) {
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j)
          acc[i][j] = bits_as<Word>(bits_as<u32>(acc[i][j]) | u32(unit - 1));
    }
  }
};

}  // namespace sr

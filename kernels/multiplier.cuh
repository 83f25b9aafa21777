// The arithmetic: a tile of accumulators in registers, fed from shared memory.
#pragma once
#include "steps.cuh"
#include "tile.cuh"

namespace sr {

// What a thread needs of A and B for one turn of the inner loop (DEPTH steps of k).
template <class Step, class Tile, int DEPTH>
struct Fragment {
  using Word = typename Step::Word;
  Word a[Tile::TM][DEPTH];  // [TM][DEPTH]
  Word b[Tile::TN][DEPTH];  // [TN][DEPTH]

  // as: [BK][LDA] and bs: [BK][LDB] in shared memory, at this thread's first row and column.
  template <int LDA, int LDB>
  SR_FN void load(const Word* as, const Word* bs, int k) {
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
      line<Tile::TM, Tile::VM, Tile::LM>(a, as + (k + d) * LDA, d);
      line<Tile::TN, Tile::VN, Tile::LN>(b, bs + (k + d) * LDB, d);
    }
  }

  // T words of one step of k, in groups of V that lie V * LANES apart.
  template <int T, int V, int LANES>
  SR_FN static void line(Word (&x)[T][DEPTH], const Word* from, int d) {
    constexpr int N = V * sizeof(Word) > 16 ? 16 / sizeof(Word) : V;
#pragma unroll
    for (int t = 0; t < T; t += N) {
      const Word* at = from + t / V * V * LANES + t % V;
      const Pack<Word, N> group = *reinterpret_cast<const Pack<Word, N>*>(at);
#pragma unroll
      for (int q = 0; q < N; ++q) x[t + q][d] = group.x[q];
    }
  }
};

template <class Step, class Tile>
struct Multiplier {
  using Word = typename Step::Word;
  static constexpr int TM = Tile::TM, TN = Tile::TN;
  Word acc[TM][TN];  // [TM][TN]

  SR_FN void clear() {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[i][j] = Step::start();
  }

  template <int DEPTH>
  SR_FN void take(const Fragment<Step, Tile, DEPTH>& x, int unit) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int s = 0; s < TN; ++s) {
        const int j = i % 2 ? TN - 1 - s : s;  // to and fro: at a turn, b is still at hand
        if constexpr (DEPTH < Step::DEPTH) Step::one(acc[i][j], x.a[i][0], x.b[j][0]);
        else if constexpr (!Step::MIXED) Step::take(acc[i][j], x.a[i], x.b[j]);
        else if ((i + j) % 2) Step::take_mixed(acc[i][j], x.a[i], x.b[j], unit);
        else Step::take(acc[i][j], x.a[i], x.b[j]);
      }
  }
};

}  // namespace sr

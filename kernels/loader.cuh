// From global memory to shared memory: BK x ROWS words, k-major, whatever the strides.
//
// Rows and steps of k beyond the matrix are read from inside it: rows because their results are
// dropped by the epilogue, steps because the multiplier stops at k. So no padding value ever enters
// a result, and nothing outside an operand is touched.
#pragma once
#include "steps.cuh"

namespace sr {

template <class Step, bool LEFT>
struct Side {
  using Element = typename Step::Left;
  static constexpr int ELEMENTS = 1;
  SR_FN static typename Step::Word word(const Element* x) { return Step::left(x[0]); }
};
template <class Step>
struct Side<Step, false> {
  using Element = typename Step::Right;
  static constexpr int ELEMENTS = Step::ELEMENTS;
  SR_FN static typename Step::Word word(const Element* x) { return Step::right(x); }
};

// K_UNIT: k is the contiguous direction; else the rows are, or nothing is.
// WIDE: four words can be read at once along the contiguous direction.
template <class Step, bool LEFT, class Tile, bool K_UNIT, bool WIDE>
struct Loader {
  using Word = typename Step::Word;
  using Element = typename Side<Step, LEFT>::Element;
  static constexpr int ELEMENTS = Side<Step, LEFT>::ELEMENTS;
  static constexpr int ROWS = LEFT ? Tile::BM : Tile::BN;
  static constexpr int LD = ROWS + Tile::PAD;  // leading dimension in shared memory
  static constexpr int WORDS = Tile::BK * LD;
  // Words that lie in memory as they are computed with are copied without passing through
  // registers, but four at a time only in the order of shared memory.
  static constexpr bool ASYNC = Step::PLAIN && !(WIDE && K_UNIT);
  static constexpr int CHUNK = WIDE ? 4 : 1;  // words that a thread reads at once
  static constexpr int CHUNKS = Tile::BK * ROWS / CHUNK / Tile::THREADS;
  static constexpr int LINE = (K_UNIT ? Tile::BK : ROWS) / CHUNK;  // chunks side by side
  static constexpr int TURN = LINE > Tile::THREADS ? LINE / Tile::THREADS : 1;
  static_assert(CHUNKS > 0 && CHUNKS * CHUNK * Tile::THREADS == Tile::BK * ROWS,
                "threads share a tile evenly");
  static_assert(LINE * (Tile::THREADS / LINE) == Tile::THREADS || LINE == TURN * Tile::THREADS,
                "a thread's chunks lie a fixed step apart");

  const Element* first;  // this thread's first element of the next tile, if all are inside
  i64 outer, down;       // strides along the rows and along k, in elements
  int rows;              // elements inside the matrix, from the tile's first
  Word held[ASYNC ? 1 : CHUNKS * CHUNK];

  // Row (in words) and step of a thread's first chunk; how far the others are from it.
  SR_FN static int row0() {
    int within = int(threadIdx.x) % LINE * CHUNK, line = int(threadIdx.x) / LINE;
    return K_UNIT ? line : within;
  }
  SR_FN static int k0() {
    int within = int(threadIdx.x) % LINE * CHUNK, line = int(threadIdx.x) / LINE;
    return K_UNIT ? within : line;
  }
  static constexpr int LINES = Tile::THREADS / LINE;  // that the threads read at a time, or 0
  SR_FN static constexpr int along(int i) { return LINES ? 0 : i % TURN * Tile::THREADS * CHUNK; }
  SR_FN static constexpr int across(int i) { return LINES ? i * LINES : i / TURN; }
  SR_FN static constexpr int row_step(int i) { return K_UNIT ? across(i) : along(i); }
  SR_FN static constexpr int k_step(int i) { return K_UNIT ? along(i) : across(i); }

  SR_FN void start(const Element* tile, i64 outer_, i64 down_, int rows_) {
    outer = outer_;
    down = down_;
    rows = rows_;
    first = tile + offset(row0() * ELEMENTS, k0());
  }
  SR_FN i64 offset(int element, int k) const {
    return K_UNIT ? element * outer + k : (WIDE ? i64(element) : element * outer) + k * down;
  }

  // Begin to read a tile, of which `k_left` steps are inside: to registers, or to `stage`.
  SR_FN void fetch(Word* stage, int k_left) {
    if (rows >= ROWS * ELEMENTS && k_left >= Tile::BK) fetch_as<false>(stage, k_left);
    else fetch_as<true>(stage, k_left);
    first += K_UNIT ? i64(Tile::BK) : Tile::BK * down;
  }

  template <bool EDGE>
  SR_FN void fetch_as(Word* stage, int k_left) {
    const int row = row0(), k = k0();
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      int to_row = row_step(i) * ELEMENTS, to_k = k_step(i);
      if constexpr (EDGE) {  // extents are multiples of a chunk: it is inside or outside as one
        if (row * ELEMENTS + to_row >= rows) to_row = -row * ELEMENTS;
        if (k + to_k >= k_left) to_k = -k;
      }
      const Element* from = first + offset(to_row, to_k);
      // the second element of a word may be outside where the first is not
      const int last = EDGE ? rows - 1 - (row * ELEMENTS + to_row) : ELEMENTS;
      if constexpr (ASYNC) {
        Word* to = stage + (k + k_step(i)) * LD + row + row_step(i);
        if constexpr (Tile::SWIZZLED) to = swizzled(stage, i);
        copy_async<4 * CHUNK>(to, from);
      } else if constexpr (CHUNK == 1) {
        Element x[ELEMENTS];  // [ELEMENTS]
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e) x[e] = from[offset(e < last ? e : last, 0)];
        held[i] = Side<Step, LEFT>::word(x);
      } else if constexpr (K_UNIT) {  // four steps of one row
        using Four = Pack<Element, 4>;
        Four x[ELEMENTS];
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e)
          x[e] = *reinterpret_cast<const Four*>(from + offset(e < last ? e : last, 0));
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          Element y[ELEMENTS];
#pragma unroll
          for (int e = 0; e < ELEMENTS; ++e) y[e] = x[e].x[q];
          held[4 * i + q] = Side<Step, LEFT>::word(y);
        }
      } else {  // four words of one step
        using Four = Pack<Element, 4 * ELEMENTS>;
        const Four x = *reinterpret_cast<const Four*>(from);
#pragma unroll
        for (int q = 0; q < 4; ++q) held[4 * i + q] = Side<Step, LEFT>::word(x.x + q * ELEMENTS);
      }
    }
  }

  // Where the words of chunk i lie, if rows lie in another order.
  SR_FN static Word* swizzled(Word* stage, int i) {
    const int k = k0() + k_step(i);
    return stage + k * LD + Tile::place(row0() + row_step(i), k);
  }

  // What was read into registers to shared memory.
  SR_FN void commit(Word* stage) {
    if constexpr (!ASYNC) {
      if constexpr (!Tile::SWIZZLED) stage += k0() * LD + row0();
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
        Word* to = stage + k_step(i) * LD + row_step(i);
        if constexpr (Tile::SWIZZLED) to = swizzled(stage, i);
        if constexpr (CHUNK == 1) {
          *to = held[i];
        } else if constexpr (K_UNIT) {
#pragma unroll
          for (int q = 0; q < 4; ++q) to[q * LD] = held[4 * i + q];
        } else {
          constexpr int N = sizeof(Word) > 4 ? 2 : 4;
#pragma unroll
          for (int q = 0; q < 4; q += N) {
            Pack<Word, N> group;
#pragma unroll
            for (int w = 0; w < N; ++w) group.x[w] = held[4 * i + q + w];
            *reinterpret_cast<Pack<Word, N>*>(to + q) = group;
          }
        }
      }
    }
  }
};

}  // namespace sr

// Global to shared memory: a tile of BK x ROWS words of one operand, k-major, whatever its strides.
//
// Rows and steps of k outside of the matrix are clamped, i.e. read from inside it: rows, because
// the epilogue drops their results; steps, because the multiplier stops at k. So no padding value
// enters a result, and nothing outside of an operand is touched.
#pragma once
#include "steps.cuh"

namespace sr {

// How a step policy makes a word of A (LEFT) or of B.
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

// K_MAJOR: k is the contiguous direction of the operand; else its rows are, or nothing is.
// VECTOR: four words are contiguous and aligned along that direction, wherever the loader reads.
// Here "rows" are rows of A or columns of B.
template <class Step, bool LEFT, class Tile, bool K_MAJOR, bool VECTOR>
struct Loader {
  static_assert(CheckWords<Step>::DONE);
  using Word = typename Step::Word;
  using Element = typename Side<Step, LEFT>::Element;
  static constexpr int ELEMENTS = Side<Step, LEFT>::ELEMENTS;
  static constexpr int ROWS = LEFT ? Tile::BM : Tile::BN;
  static constexpr int LD = ROWS + Tile::PAD;   // leading dimension in shared memory, in words
  static constexpr int WORDS = Tile::BK * LD;   // of a stage
  // Words that need no conversion are copied without passing through registers: several at a time
  // where they are contiguous in shared memory too, as rows are; else one by one, for tiles of many
  // stages, or through registers in vectors.
  static constexpr bool LONE = K_MAJOR && Tile::STAGES > 2;
  static constexpr bool ASYNC = Step::PLAIN && !(VECTOR && K_MAJOR && !LONE);
  static constexpr int CHUNK = VECTOR && !(ASYNC && LONE) ? 4 : 1;  // that a thread reads at once
  static constexpr int COPY = CHUNK * sizeof(Word) > 16 ? 16 / sizeof(Word) : CHUNK;  // words
  static constexpr int CHUNKS = Tile::BK * ROWS / CHUNK / Tile::THREADS;  // of a thread
  // Chunks of a line along the contiguous direction. Either a line is so long that a thread has
  // PER_LINE chunks of each, or the block reads LINES lines at a time.
  static constexpr int LINE = (K_MAJOR ? Tile::BK : ROWS) / CHUNK;
  static constexpr int PER_LINE = LINE > Tile::THREADS ? LINE / Tile::THREADS : 1;
  static constexpr int LINES = Tile::THREADS / LINE;  // 0 if a line is longer than the block
  static constexpr bool AHEAD = ASYNC && LINES > 0 && Tile::STAGES > 2;  // there is fetch_ahead
  static_assert(CHUNKS > 0 && CHUNKS * CHUNK * Tile::THREADS == Tile::BK * ROWS,
                "THREADS divide the chunks of a BK x ROWS tile");
  static_assert(LINE * LINES == Tile::THREADS || LINE == PER_LINE * Tile::THREADS,
                "the chunks of a thread are a constant distance apart");

  const Element* first;  // this thread's first element of the next tile, in a row of the matrix
  i64 outer, down;       // strides along the rows and along k, in elements
  int rows;              // elements inside the matrix from the tile's first on, along the rows
  Word held[ASYNC ? 1 : CHUNKS * CHUNK];  // [CHUNKS * CHUNK], from fetch to commit

  // Row (in words) and k of this thread's first chunk, and the distance of chunk i from it.
  SR_FN static int row0() {
    int within = int(threadIdx.x) % LINE * CHUNK, line = int(threadIdx.x) / LINE;
    return K_MAJOR ? line : within;
  }
  SR_FN static int k0() {
    int within = int(threadIdx.x) % LINE * CHUNK, line = int(threadIdx.x) / LINE;
    return K_MAJOR ? within : line;
  }
  SR_FN static constexpr int along(int i) {
    return LINES ? 0 : i % PER_LINE * Tile::THREADS * CHUNK;
  }
  SR_FN static constexpr int across(int i) { return LINES ? i * LINES : i / PER_LINE; }
  SR_FN static constexpr int row_step(int i) { return K_MAJOR ? across(i) : along(i); }
  SR_FN static constexpr int k_step(int i) { return K_MAJOR ? along(i) : across(i); }

  // `tile`: the first element of the first tile of k.
  SR_FN void start(const Element* tile, i64 outer_, i64 down_, int rows_) {
    outer = outer_;
    down = down_;
    rows = rows_;
    first = tile + offset(inside_row0() * ELEMENTS, k0());
  }
  // This thread's first row, or the tile's if that is outside.
  SR_FN int inside_row0() const { return row0() * ELEMENTS < rows ? row0() : 0; }
  SR_FN i64 offset(int element, int k) const {
    return K_MAJOR ? element * outer + k : (VECTOR ? i64(element) : element * outer) + k * down;
  }

  // Start to read the next tile, of which `k_left` steps are inside of the matrix: to registers, or
  // asynchronously to `stage`, [BK][LD].
  SR_FN void fetch(Word* stage, int k_left) {
    if (rows >= ROWS * ELEMENTS && k_left >= Tile::BK) fetch_as<false>(stage, k_left);
    else fetch_as<true>(stage, k_left);
    first += K_MAJOR ? i64(Tile::BK) : Tile::BK * down;
  }

  template <bool EDGE>  // whether chunks need to be clamped
  SR_FN void fetch_as(Word* stage, int k_left) {
    const int row = EDGE ? inside_row0() : row0(), k = k0();
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      int to_row = row_step(i) * ELEMENTS, to_k = k_step(i);
      if constexpr (EDGE) {  // extents are multiples of a chunk: all of it is inside or none
        if (row * ELEMENTS + to_row >= rows) to_row = 0;
        if (k + to_k >= k_left) to_k = -k;
      }
      const Element* from = first + offset(to_row, to_k);
      // the second element of a word may be outside though the first is not
      const int last = EDGE ? rows - 1 - (row * ELEMENTS + to_row) : ELEMENTS;
      if constexpr (ASYNC) {
#pragma unroll
        for (int q = 0; q < CHUNK; q += COPY)
          copy_async<COPY * int(sizeof(Word))>(place(stage, i, q), from + q);
      } else if constexpr (CHUNK == 1) {
        Element x[ELEMENTS];  // [ELEMENTS]
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e) x[e] = from[offset(e < last ? e : last, 0)];
        held[i] = Side<Step, LEFT>::word(x);
      } else if constexpr (K_MAJOR) {  // four steps of k of one row
        using Four = Pack<Element, 4>;
        Four x[ELEMENTS];  // [ELEMENTS][4]
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e)
          x[e] = *reinterpret_cast<const Four*>(from + offset(e < last ? e : last, 0));
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          Element y[ELEMENTS];  // [ELEMENTS]
#pragma unroll
          for (int e = 0; e < ELEMENTS; ++e) y[e] = x[e].x[q];
          held[4 * i + q] = Side<Step, LEFT>::word(y);
        }
      } else {  // four words of one step of k
        using Four = Pack<Element, 4 * ELEMENTS>;
        const Four x = *reinterpret_cast<const Four*>(from);  // [4][ELEMENTS]
#pragma unroll
        for (int q = 0; q < 4; ++q) held[4 * i + q] = Side<Step, LEFT>::word(x.x + q * ELEMENTS);
      }
    }
  }

  // A tile of which all steps of k are inside of the matrix, or, unless `active`, zeros; rows
  // outside may be zeros, too. Without a branch, so that the compiler interleaves it with the
  // arithmetic.
  SR_FN void fetch_ahead(Word* stage, bool active) {
    static_assert(AHEAD, "chunks of a thread are in adjacent rows or steps of k, and copied");
    const Element* from = first;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      if (i > 0) from += LINES * (K_MAJOR ? outer : down);
      const bool inside = !K_MAJOR || i == 0 || row0() + row_step(i) < rows;
#pragma unroll
      for (int q = 0; q < CHUNK; q += COPY)
        copy_async<COPY * int(sizeof(Word))>(place(stage, i, q), from + q, active && inside);
    }
    first += K_MAJOR ? i64(Tile::BK) : Tile::BK * down;
  }

  // Where word q of chunk i lies in a stage.
  SR_FN static Word* place(Word* stage, int i, int q = 0) {
    const int row = row_step(i) + q, k = k0() + k_step(i);
    if constexpr (!Tile::SWIZZLED) return stage + k0() * LD + row0() + k_step(i) * LD + row;
    else if constexpr (row_step(1) % Tile::SWIZZLED == 0)
      return stage + k * LD + Tile::swizzle(row0() + q, k) + row_step(i);
    else return stage + k * LD + Tile::swizzle(row0() + row, k);
  }

  // Registers to shared memory. Asynchronous copies need no commit, only copy_wait.
  SR_FN void commit(Word* stage) {
    if constexpr (!ASYNC) {
      if constexpr (Tile::SWIZZLED == 0) stage += k0() * LD + row0();
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
        Word* to = stage + k_step(i) * LD + row_step(i);
        if constexpr (Tile::SWIZZLED > 0) to = place(stage, i);
        if constexpr (CHUNK == 1) {
          *to = held[i];
        } else if constexpr (K_MAJOR) {  // transposed: four steps of k are LD words apart
#pragma unroll
          for (int q = 0; q < 4; ++q) to[q * LD] = held[4 * i + q];
        } else {
          constexpr int N = sizeof(Word) > 4 ? 2 : 4;  // words of 16 bytes
#pragma unroll
          for (int q = 0; q < 4; q += N) {
            Pack<Word, N> group;  // [N]
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

// Global to shared memory: a tile of BK x ROWS words of one operand, k-major or in pairs of k
// (tile.cuh), whatever its strides.
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
  static constexpr bool PLAIN = Step::PLAIN;
  SR_FN static typename Step::Word word(const Element* x) { return Step::left(x[0]); }
};
template <class Step>
struct Side<Step, false> {
  using Element = typename Step::Right;
  static constexpr int ELEMENTS = Step::ELEMENTS;
  static constexpr bool PLAIN = Step::RIGHT_PLAIN;
  SR_FN static typename Step::Word word(const Element* x) { return Step::right(x); }
};

// N elements as they were read, to be converted later: short ones stay packed in words until then.
template <class T, int N>
struct Held {
  Pack<T, N> x;  // [N]
  SR_FN void load(const T* from) { x = *reinterpret_cast<const Pack<T, N>*>(from); }
  SR_FN T operator[](int i) const { return x.x[i]; }
};
#define SR_HELD(T, UNSIGNED)                                                                    \
  template <int N>                                                                              \
  struct Held<T, N> {                                                                           \
    static constexpr int EACH = 4 / int(sizeof(T));                                             \
    Pack<u32, N / EACH> words;                                                                  \
    SR_FN void load(const T* from) {                                                            \
      words = *reinterpret_cast<const Pack<u32, N / EACH>*>(from);                              \
    }                                                                                           \
    SR_FN T operator[](int i) const {                                                           \
      return bits_as<T>(UNSIGNED(words.x[i / EACH] >> 8 * int(sizeof(T)) * (i % EACH)));        \
    }                                                                                           \
  }
SR_HELD(half, u16);
SR_HELD(bfloat, u16);
SR_HELD(i16, u16);
SR_HELD(u16, u16);
SR_HELD(i8, u8);
SR_HELD(u8, u8);
#undef SR_HELD

// K_MAJOR: k is the contiguous direction of the operand; else its rows are, or nothing is.
// VECTOR: four words are contiguous and aligned along that direction, wherever the loader reads.
// OTHER_K_MAJOR: K_MAJOR of the other operand. Here "rows" are rows of A or columns of B.
template <class Step, bool LEFT, class Tile, bool K_MAJOR, bool VECTOR, bool OTHER_K_MAJOR>
struct Loader {
  static_assert(CheckWords<Step>::DONE);
  using Word = typename Step::Word;
  using Element = typename Side<Step, LEFT>::Element;
  static constexpr int ELEMENTS = Side<Step, LEFT>::ELEMENTS;
  static constexpr int ROWS = LEFT ? Tile::BM : Tile::BN;
  static constexpr int LD = ROWS + Tile::PAD;   // words of a step of k in shared memory
  static constexpr int WORDS = Tile::BK * LD;   // of a stage
  static constexpr bool PAIRS = Tile::PAIRS;
  // Words that need no conversion are copied without passing through registers: several at a time
  // where they are contiguous in shared memory too (rows, or two steps of k in PAIRS of A); else one
  // by one, for tiles of many stages, or through registers in vectors.
  static constexpr bool RAW = Side<Step, LEFT>::PLAIN && (ELEMENTS == 1 || (VECTOR && !K_MAJOR));
  static constexpr bool LONE = K_MAJOR && Tile::STAGES > 2;
  static constexpr bool ASYNC = RAW && (PAIRS || LONE || !(VECTOR && K_MAJOR));
  // Words that a thread reads at once, and copies at once.
  static constexpr int CHUNK = !VECTOR || (ASYNC && LONE) ? 1
                               : !(ASYNC && PAIRS)        ? 4
                               : LEFT && K_MAJOR          ? 2
                                                          : 1;
  static constexpr int COPY = CHUNK * sizeof(Word) > 16 ? 16 / sizeof(Word) : CHUNK;
  static constexpr int CHUNKS = Tile::BK * ROWS / CHUNK / Tile::THREADS;  // of a thread
  // Chunks of a line along the contiguous direction. LANES threads have PER_LINE chunks each of a
  // line, since a line is longer than the block, or since offsets along it are constants; the block
  // reads LINES lines at a time.
  static constexpr int LINE = (K_MAJOR ? Tile::BK : ROWS) / CHUNK;
  static constexpr int LEAST = LINE > Tile::THREADS ? LINE / Tile::THREADS : 1;
  // Words that are copied one by one: so many of a thread share a line, hence an address. As many
  // more lines a warp reads at once, which costs more than it saves where both operands are copied
  // so, and in tiles of few threads (measured).
  static constexpr int LONE_WORDS =
      OTHER_K_MAJOR || sizeof(Word) > 4 || Tile::THREADS <= 128 ? 1 : LEFT ? 4 : 2;
  static constexpr int WANTED = PAIRS && ASYNC && !K_MAJOR && LINE >= 128 ? LINE / 32
                                : !PAIRS && ASYNC && LONE                 ? LONE_WORDS
                                                                          : 1;
  static constexpr int PER_LINE = WANTED < LEAST ? LEAST : WANTED > CHUNKS ? CHUNKS : WANTED;
  static constexpr int LANES = LINE / PER_LINE, LINES = Tile::THREADS / LANES;
  static constexpr bool AHEAD =  // whether there is fetch_ahead
      ASYNC && (PER_LINE == 1 || K_MAJOR) && ELEMENTS == 1 && Tile::STAGES > 2;
  static_assert(CHUNKS > 0 && CHUNKS * CHUNK * Tile::THREADS == Tile::BK * ROWS,
                "THREADS divide the chunks of a BK x ROWS tile");
  static_assert(LANES * PER_LINE == LINE && LANES * LINES == Tile::THREADS,
                "the chunks of a thread are a constant distance apart");

  const Element* first;  // this thread's first element of the next tile, from first_row() on
  i64 outer, down;       // strides along the rows and along k, in elements
  int rows;              // elements inside the matrix from the tile's first on, along the rows
  // From fetch to commit: lines of a chunk along the contiguous direction; without VECTOR, words.
  static constexpr int CHUNK_LINES = K_MAJOR ? ELEMENTS : 1;
  using Line = Held<Element, K_MAJOR ? 4 : 4 * ELEMENTS>;
  Line held[ASYNC || !VECTOR ? 1 : CHUNKS][CHUNK_LINES];  // [CHUNKS][CHUNK_LINES]
  Word single[ASYNC || VECTOR ? 1 : CHUNKS];              // [CHUNKS]

  // Row (in words) and k of this thread's first chunk, and the distance of chunk i from it.
  SR_FN static int row0() {
    int within = int(threadIdx.x) % LANES * CHUNK, line = int(threadIdx.x) / LANES;
    return K_MAJOR ? line : within;
  }
  SR_FN static int k0() {
    int within = int(threadIdx.x) % LANES * CHUNK, line = int(threadIdx.x) / LANES;
    return K_MAJOR ? within : line;
  }
  SR_FN static constexpr int along(int i) { return i % PER_LINE * LANES * CHUNK; }
  SR_FN static constexpr int across(int i) { return i / PER_LINE * LINES; }
  SR_FN static constexpr int row_step(int i) { return K_MAJOR ? across(i) : along(i); }
  SR_FN static constexpr int k_step(int i) { return K_MAJOR ? along(i) : across(i); }

  // `tile`: the first element of the first tile of k.
  SR_FN void start(const Element* tile, i64 outer_, i64 down_, int rows_) {
    outer = outer_;
    down = down_;
    rows = rows_;
    first = tile + offset(first_row() * ELEMENTS, k0());
  }
  // This thread's first row. AHEAD, the tile's first if that is outside of the matrix.
  SR_FN int first_row() const { return !AHEAD || row0() < rows ? row0() : 0; }
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
    const int row = first_row(), k = k0();
    // unrolled, the clamped addresses of all copies would be in registers at once
#pragma unroll EDGE && ASYNC ? 1 : CHUNKS
    for (int i = 0; i < CHUNKS; ++i) {
      int to_row = row_step(i) * ELEMENTS, to_k = k_step(i);
      if constexpr (EDGE) {  // extents are multiples of a chunk: all of it is inside or none
        if (row * ELEMENTS + to_row >= rows) to_row = AHEAD ? 0 : -row * ELEMENTS;
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
        single[i] = Side<Step, LEFT>::word(x);
      } else {  // four words: four steps of k of a row, or four rows of a step of k
#pragma unroll
        for (int e = 0; e < CHUNK_LINES; ++e)
          held[i][e].load(from + offset(e < last ? e : last, 0));
      }
    }
  }

  // A tile of which all steps of k are inside of the matrix, or, unless `active`, zeros; rows
  // outside may be zeros, too. Without a branch, so that the compiler interleaves it with the
  // arithmetic.
  SR_FN void fetch_ahead(Word* stage, bool active) {
    static_assert(AHEAD, "chunks of a thread are a constant distance apart, and copied");
    const Element* from = first;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      if (i > 0 && i % PER_LINE == 0) from += LINES * (K_MAJOR ? outer : down);
      const bool inside = !K_MAJOR || row_step(i) == 0 || row0() + row_step(i) < rows;
#pragma unroll
      for (int q = 0; q < CHUNK; q += COPY)
        copy_async<COPY * int(sizeof(Word))>(place(stage, i, q), from + along(i) + q, active && inside);
    }
    first += K_MAJOR ? i64(Tile::BK) : Tile::BK * down;
  }

  // Word q of chunk i, converted.
  SR_FN Word word(int i, int q) const {
    if constexpr (CHUNK == 1) {
      return single[i];
    } else {
      Element x[ELEMENTS];  // [ELEMENTS]
#pragma unroll
      for (int e = 0; e < ELEMENTS; ++e)
        x[e] = K_MAJOR ? held[i][e % CHUNK_LINES][q] : held[i][0][q * ELEMENTS + e];
      return Side<Step, LEFT>::word(x);
    }
  }

  // Where a row begins among the words of a step of k, or of two in PAIRS (tile.cuh).
  SR_FN static int at(int row) {
    if constexpr (PAIRS) {
      const unsigned x = unsigned(row), group = x / V % (GROUPS / V);
      return int(x / GROUPS * (2 * GROUPS) + x % V / 2 * (4 * GROUPS / V) + group * 4 + x % 2 * 2);
    } else {
      return row;
    }
  }
  static constexpr int V = LEFT ? Tile::VM : Tile::VN;
  static constexpr int GROUPS = V * (LEFT ? Tile::LM : Tile::LN);
  // In PAIRS: k, k + 1 of A and k + 1, k of B.
  SR_FN static Word* origin(Word* stage, int row, int k) {
    return stage + at(row) + int(unsigned(k) / 2 * (2 * LD) + unsigned(k + !LEFT) % 2);
  }
  // Where word q of chunk i lies in a stage.
  SR_FN static Word* place(Word* stage, int i, int q = 0) {
    if constexpr (PAIRS) {
      if (row_step(i) % GROUPS || k_step(i) % 2)
        return origin(stage, row0() + row_step(i), k0() + k_step(i)) + within(q);
      return origin(stage, row0(), k0()) + k_step(i) * LD + 2 * row_step(i) + within(q);
    } else {
      const int row = row_step(i) + q, k = k0() + k_step(i);
      // the distance of a chunk from the first is a constant, which instructions add for nothing
      if constexpr (Tile::SWIZZLED == 0) return stage + k0() * LD + row0() + k_step(i) * LD + row;
      else if constexpr (row_step(1) % Tile::SWIZZLED == 0)
        return stage + k * LD + Tile::swizzle(row0() + q, k) + row_step(i);
      else return stage + k * LD + Tile::swizzle(row0() + row, k);
    }
  }
  // Word q of a chunk in PAIRS, from its first.
  SR_FN static constexpr int within(int q) {
    if constexpr (K_MAJOR) return q / 2 * (2 * LD) + (LEFT ? q % 2 : -(q % 2));
    else return V == 4 ? q / 2 * (4 * GROUPS / V) + q % 2 * 2 : 2 * q;
  }
  // Registers to shared memory. Asynchronous copies need no commit, only copy_wait.
  SR_FN void commit(Word* stage) {
    if constexpr (!ASYNC) {
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
        if constexpr (CHUNK == 1) {
          *place(stage, i) = word(i, 0);
        } else if constexpr (PAIRS && K_MAJOR) {  // two pairs, 2 LD words apart
#pragma unroll
          for (int q = 0; q < 4; q += 2) {
            const Pack<Word, 2> pair = {word(i, q + !LEFT), word(i, q + LEFT)};
            *reinterpret_cast<Pack<Word, 2>*>(place(stage, i, LEFT ? q : q + 1)) = pair;
          }
        } else if constexpr (PAIRS) {  // in four pairs
#pragma unroll
          for (int q = 0; q < 4; ++q) *place(stage, i, q) = word(i, q);
        } else if constexpr (K_MAJOR) {  // transposed: four steps of k are LD words apart
#pragma unroll
          for (int q = 0; q < 4; ++q) place(stage, i)[q * LD] = word(i, q);
        } else {
          constexpr int N = sizeof(Word) > 4 ? 2 : 4;  // words of 16 bytes
#pragma unroll
          for (int q = 0; q < 4; q += N) {
            Pack<Word, N> group;  // [N]
#pragma unroll
            for (int w = 0; w < N; ++w) group.x[w] = word(i, q + w);
            *reinterpret_cast<Pack<Word, N>*>(place(stage, i) + q) = group;
          }
        }
      }
    }
  }
};

}  // namespace sr

// Closures of small matrices: for each k in turn, every row i but k becomes
// row i ⊕ (A[i, k] ⊗ row k), with one on the diagonal. A block closes a matrix.
//
// FRESH: one is still to be joined to the diagonal, and the marks to be made: that of an edge is its
// row, and that of any other entry and of the diagonal is NONE.
#pragma once
#include "base.cuh"

namespace sr {

struct ClosureParams {
  const void* from;
  void* a;     // what becomes of it, which may be the same
  int* marks;  // predecessors: where an entry improves, it takes that of its column in row k
  i64 from_batch, from_m, from_n, a_batch, a_m, a_n, marks_batch, marks_m, marks_n;  // in elements
  i64 zero, one;  // the low bytes are a Storage
  int n;
};
enum { NONE = -9999 };  // SciPy's sign for no predecessor

template <class A>
struct Matrix {
  using Storage = typename A::Storage;
  using Compute = typename A::Compute;
  const Storage* from;
  Storage* a;
  int* marks;
  i64 from_m, from_n, a_m, a_n, marks_m, marks_n;
  Compute zero, one;

  SR_FN explicit Matrix(const ClosureParams& p)
      : from(static_cast<const Storage*>(p.from) + blockIdx.x * p.from_batch),
        a(static_cast<Storage*>(p.a) + blockIdx.x * p.a_batch),
        marks(p.marks ? p.marks + blockIdx.x * p.marks_batch : nullptr),
        from_m(p.from_m), from_n(p.from_n), a_m(p.a_m), a_n(p.a_n),
        marks_m(p.marks_m), marks_n(p.marks_n),
        zero(A::decode(*reinterpret_cast<const Storage*>(&p.zero))),
        one(A::decode(*reinterpret_cast<const Storage*>(&p.one))) {}
  SR_FN const Storage& given(int i, int j) const { return from[i * from_m + j * from_n]; }
  SR_FN Storage& at(int i, int j) const { return a[i * a_m + j * a_n]; }
  SR_FN int& mark(int i, int j) const { return marks[i * marks_m + j * marks_n]; }
  SR_FN Compute fresh(int i, int j, Compute x) const { return i == j ? A::add(x, one) : x; }
  SR_FN int fresh_mark(int i, int j, Compute x) const { return i == j || x == zero ? NONE : i; }
};

// NANS: a NaN may appear, and counts as better than any number, as it does for minima and maxima.
template <class A, bool NANS>
SR_FN bool improves(typename A::Compute x, typename A::Compute old) {
  return A::better(x, old) || (NANS && x != x && old == old);
}

// In registers: SIDE x SIDE threads have T x T entries each, in groups of four rows and columns that
// the threads take in turns. Row and column k pass through shared memory, in two buffers that take
// turns, so that a step needs one barrier. WIDE: four entries (and marks) can be read at once.
template <class A, int SIDE, int T, bool WIDE, bool FRESH, bool MARKS, bool NANS>
struct ClosureTile {
  using Word = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int THREADS = SIDE * SIDE, N = SIDE * T;
  static constexpr int GROUP = sizeof(Word) > 4 ? 2 : 4;  // words of a 16-byte access
  static constexpr int BUFFER = 2 * N * int(sizeof(Word)) + (MARKS ? N * 4 : 0);
  static constexpr int BYTES = 2 * BUFFER;
  static_assert(T % 4 == 0, "groups of four");

  SR_FN static int down() { return int(threadIdx.x) / SIDE; }
  SR_FN static int across() { return int(threadIdx.x) % SIDE; }
  SR_FN static constexpr int place(int thread, int e) {
    return e / 4 * (4 * SIDE) + thread * 4 + e % 4;
  }

  Word x[T][T];                           // [T][T]
  int mark[MARKS ? T : 1][MARKS ? T : 1]; // [T][T]

  SR_FN static void run(const ClosureParams& p) {
    const Matrix<A> matrix(p);
    ClosureTile tile;
    tile.load(matrix, p.n);
#pragma unroll
    for (int g = 0; g < T; g += 4)
#pragma unroll 1
      for (int turn = 0; turn < SIDE && g * SIDE + 4 * turn < p.n; ++turn)
#pragma unroll
        for (int q = 0; q < 4; ++q)  // k is row g + q of the threads `turn`
          if (g * SIDE + 4 * turn + q < p.n) tile.step(turn, g + q);
    tile.store(matrix, p.n);
  }

  SR_FN void step(int turn, int e) {
    unsigned char* buffer = shared_memory<unsigned char>() + e % 2 * BUFFER;
    Word* row = reinterpret_cast<Word*>(buffer);  // [N]
    Word* column = row + N;                       // [N]
    int* marks = reinterpret_cast<int*>(column + N);  // [N], of row k
    if (down() == turn) {
      put(row, across(), x[e]);
      if constexpr (MARKS) put(marks, across(), mark[e]);
    }
    if (across() == turn) {
      Word own[T];
#pragma unroll
      for (int r = 0; r < T; ++r) own[r] = x[r][e];
      put(column, down(), own);
    }
    __syncthreads();  // row and column k are there; those before are done with
    Word left[T], right[T];
    int news[MARKS ? T : 1];
    get(column, down(), left);
    get(row, across(), right);
    if constexpr (MARKS) get(marks, across(), news);
#pragma unroll
    for (int r = 0; r < T; ++r) {
      if (r == e && down() == turn) continue;  // row k itself
#pragma unroll
      for (int c = 0; c < T; ++c) {
        const Word through = A::mul(left[r], right[c]);
        if constexpr (MARKS) {
          const bool wins = improves<A, NANS>(through, x[r][c]);
          x[r][c] = wins ? through : x[r][c];
          mark[r][c] = wins ? news[c] : mark[r][c];
        } else {
          x[r][c] = A::add(x[r][c], through);
        }
      }
    }
  }

  template <class W>
  SR_FN static void put(W* line, int thread, const W (&own)[T]) {
    constexpr int G = sizeof(W) > 4 ? 2 : 4;
#pragma unroll
    for (int e = 0; e < T; e += G) {
      Pack<W, G> group;
#pragma unroll
      for (int i = 0; i < G; ++i) group.x[i] = own[e + i];
      *reinterpret_cast<Pack<W, G>*>(line + place(thread, e)) = group;
    }
  }
  template <class W>
  SR_FN static void get(const W* line, int thread, W (&own)[T]) {
    constexpr int G = sizeof(W) > 4 ? 2 : 4;
#pragma unroll
    for (int e = 0; e < T; e += G) {
      const Pack<W, G> group = *reinterpret_cast<const Pack<W, G>*>(line + place(thread, e));
#pragma unroll
      for (int i = 0; i < G; ++i) own[e + i] = group.x[i];
    }
  }

  // Entries outside the matrix start from anything: none inside looks at them.
  SR_FN void load(const Matrix<A>& from, int n) {
#pragma unroll
    for (int r = 0; r < T; ++r) {
      const int i = place(down(), r);
#pragma unroll
      for (int c = 0; c < T; c += 4) {
        const int j = place(across(), c);
        using Four = Pack<Storage, 4>;
        Four four{};
        if (WIDE && i < n && j < n) four = *reinterpret_cast<const Four*>(&from.given(i, j));
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          if (!WIDE && i < n && j + q < n) four.x[q] = from.given(i, j + q);
          Word& own = x[r][c + q];
          own = A::decode(four.x[q]);
          if constexpr (FRESH && MARKS) mark[r][c + q] = from.fresh_mark(i, j + q, own);
          if constexpr (FRESH) own = from.fresh(i, j + q, own);
        }
        if constexpr (MARKS && !FRESH) {
          Pack<int, 4> marks{};
          if (WIDE && i < n && j < n) marks = *reinterpret_cast<Pack<int, 4>*>(&from.mark(i, j));
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            if (!WIDE && i < n && j + q < n) marks.x[q] = from.mark(i, j + q);
            mark[r][c + q] = marks.x[q];
          }
        }
      }
    }
  }
  SR_FN void store(const Matrix<A>& to, int n) const {
#pragma unroll
    for (int r = 0; r < T; ++r) {
      const int i = place(down(), r);
#pragma unroll
      for (int c = 0; c < T; c += 4) {
        const int j = place(across(), c);
        Pack<Storage, 4> four;
        Pack<int, 4> marks;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          four.x[q] = A::encode(x[r][c + q]);
          if constexpr (MARKS) marks.x[q] = FRESH && i == j + q ? int(NONE) : mark[r][c + q];
          if (WIDE || i >= n || j + q >= n) continue;
          to.at(i, j + q) = four.x[q];
          if constexpr (MARKS) to.mark(i, j + q) = marks.x[q];
        }
        if (!WIDE || i >= n || j >= n) continue;
        *reinterpret_cast<Pack<Storage, 4>*>(&to.at(i, j)) = four;
        if constexpr (MARKS) *reinterpret_cast<Pack<int, 4>*>(&to.mark(i, j)) = marks;
      }
    }
  }
};

// In shared memory, for what registers do not hold: a warp takes every 32nd row, a lane every 32nd of
// up to 32 * COLUMNS columns. Column k lies apart, in two buffers that take turns, since the rows
// change it.
template <class A, int COLUMNS, bool FRESH, bool MARKS, bool NANS>
struct ClosureShared {
  using Word = typename A::Compute;
  static constexpr int THREADS = 1024, WARPS = THREADS / 32;

  // Whether this lane's column c is: all but the last are.
  SR_FN static bool inside(int c, int n) {
    return c < COLUMNS - 1 || int(threadIdx.x) % 32 + 32 * c < n;
  }

  SR_FN static void run(const ClosureParams& p) {
    const Matrix<A> matrix(p);
    const int n = p.n, lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    Word* x = shared_memory<Word>();                   // [n][n]
    Word* columns = x + n * n;                         // [2][n]
    int* mark = reinterpret_cast<int*>(columns + 2 * n);  // [n][n]
    for (int i = warp; i < n; i += WARPS)
      for (int j = lane; j < n; j += 32) {
        Word value = A::decode(matrix.given(i, j));
        if constexpr (MARKS)
          mark[i * n + j] = FRESH ? matrix.fresh_mark(i, j, value) : matrix.mark(i, j);
        if constexpr (FRESH) value = matrix.fresh(i, j, value);
        x[i * n + j] = value;
        if (j == 0) columns[i] = value;
      }
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
      const Word* column = columns + k % 2 * n;
      Word* next = columns + (k + 1) % 2 * n;
      __syncthreads();  // step k - 1 is done
      Word right[COLUMNS];  // [COLUMNS]: of row k
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        const int j = lane + 32 * c;
        right[c] = x[k * n + (inside(c, n) ? j : 0)];
        if (warp == k % WARPS && j == k + 1 && j < n) next[k] = right[c];
      }
#pragma unroll 2
      for (int i = warp; i < n; i += WARPS) {
        if (i == k) continue;
        const Word left = column[i];
        Word* row = x + i * n + lane;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
          if (!inside(c, n)) continue;
          Word value = row[32 * c];
          const Word through = A::mul(left, right[c]);
          if constexpr (MARKS) {
            if (!improves<A, NANS>(through, value)) continue;
            value = through;
            mark[i * n + lane + 32 * c] = mark[k * n + lane + 32 * c];
          } else {
            value = A::add(value, through);
          }
          row[32 * c] = value;
        }
        if (lane == (k + 1) % 32 && k + 1 < n) next[i] = row[k + 1 - lane];
      }
    }
    __syncthreads();  // all is done
    for (int i = warp; i < n; i += WARPS)
      for (int j = lane; j < n; j += 32) {
        matrix.at(i, j) = A::encode(x[i * n + j]);
        if constexpr (MARKS) matrix.mark(i, j) = FRESH && i == j ? int(NONE) : mark[i * n + j];
      }
  }
};

}  // namespace sr

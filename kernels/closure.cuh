// Kernels: closures of small matrices by Kleene's elimination (Floyd-Warshall). For k = 0, 1, ...,
// every row i != k becomes row i ⊕ (A[i, k] ⊗ row k). A block closes a matrix in registers; larger
// ones are in elimination.cuh.
//
// FRESH: the kernel adds the identity of ⊗ to the diagonal and makes the predecessors: that of an
// edge (i, j) is i, that of any other entry and of the diagonal is NONE. PREDECESSORS: where an
// entry (i, j) improves, it takes the predecessor of (k, j).
#pragma once
#include "base.cuh"

namespace sr {

struct ClosureParams {
  const void* from;  // [batch][n][n]
  void* a;           // [batch][n][n]: the closure; may be `from`
  int* preds;        // [batch][n][n]: predecessors, or none
  i64 from_batch, from_m, from_n, a_batch, a_m, a_n, pred_batch, pred_m, pred_n;  // in elements
  i64 zero, one;     // the low bytes are a Storage
  int n;
};
enum { NONE = -9999 };  // no predecessor, as SciPy has it

// A matrix of the batch in global memory.
template <class A>
struct Matrix {
  using Storage = typename A::Storage;
  using Compute = typename A::Compute;
  const Storage* from;
  Storage* a;
  i64 from_m, from_n, a_m, a_n;
  Compute zero, one;

  template <class Params>  // of any kernel that has these fields
  SR_FN Matrix(const Params& p, int index)
      : from(static_cast<const Storage*>(p.from) + index * p.from_batch),
        a(static_cast<Storage*>(p.a) + index * p.a_batch),
        from_m(p.from_m), from_n(p.from_n), a_m(p.a_m), a_n(p.a_n),
        zero(A::decode(*reinterpret_cast<const Storage*>(&p.zero))),
        one(A::decode(*reinterpret_cast<const Storage*>(&p.one))) {}
  SR_FN const Storage& given(int i, int j) const { return from[i * from_m + j * from_n]; }
  SR_FN Storage& at(int i, int j) const { return a[i * a_m + j * a_n]; }
  SR_FN Compute with_one(int i, int j, Compute x) const { return i == j ? A::add(x, one) : x; }
};

// The same with predecessors, if there are any.
template <class A>
struct MarkedMatrix : Matrix<A> {
  int* preds;
  i64 pred_m, pred_n;

  SR_FN MarkedMatrix(const ClosureParams& p, int index)
      : Matrix<A>(p, index),
        preds(p.preds ? p.preds + index * p.pred_batch : nullptr),
        pred_m(p.pred_m), pred_n(p.pred_n) {}
  SR_FN int& pred(int i, int j) const { return preds[i * pred_m + j * pred_n]; }
  SR_FN int initial_pred(int i, int j, typename A::Compute x) const {
    return i == j || x == this->zero ? NONE : i;
  }
};

// Whether an entry improves. NANS: a NaN may appear; it is better than any number, as minima and
// maxima have it.
template <class A, bool NANS>
SR_FN bool improves(typename A::Compute x, typename A::Compute old) {
  return A::better(x, old) || (NANS && x != x && old == old);
}

// SIDE x SIDE threads have T x T entries each, in groups of four rows and columns
// that are interleaved among the threads. Row and column k are broadcast through shared memory, in
// two buffers that alternate, so that a step of k needs one barrier. VECTOR: four entries (and
// predecessors) can be read at once.
template <class A, int SIDE, int T, bool VECTOR, bool FRESH, bool PREDECESSORS, bool NANS>
struct ClosureTile {
  using Word = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int THREADS = SIDE * SIDE, N = SIDE * T;
  // Bytes of row k and column k, and of the predecessors of row k.
  static constexpr int BUFFER = 2 * N * int(sizeof(Word)) + (PREDECESSORS ? N * 4 : 0);
  static constexpr int BYTES = 2 * BUFFER;
  static_assert(T % 4 == 0, "rows come in groups of four");
  static_assert(BUFFER % 16 == 0, "buffers are 16-byte aligned");

  SR_FN static int down() { return int(threadIdx.x) / SIDE; }
  SR_FN static int across() { return int(threadIdx.x) % SIDE; }
  // Row (or column) of the matrix of a thread's e-th.
  SR_FN static constexpr int position(int thread, int e) {
    return e / 4 * (4 * SIDE) + thread * 4 + e % 4;
  }

  Word x[T][T];                           // [T][T]
  int pred[PREDECESSORS ? T : 1][PREDECESSORS ? T : 1]; // [T][T]

  SR_FN static void run(const ClosureParams& p) {
    const MarkedMatrix<A> matrix(p, int(blockIdx.x));
    ClosureTile tile;
    tile.load(matrix, p.n);
#pragma unroll
    for (int g = 0; g < T; g += 4)
#pragma unroll 1
      for (int owner = 0; owner < SIDE && g * SIDE + 4 * owner < p.n; ++owner)
#pragma unroll
        for (int q = 0; q < 4; ++q)  // k is row g + q of the threads `owner`
          if (g * SIDE + 4 * owner + q < p.n) tile.step(owner, g + q);
    tile.store(matrix, p.n);
  }

  // One step of k, which is row and column e of the threads with down() (across()) == owner.
  SR_FN void step(int owner, int e) {
    unsigned char* buffer = shared_memory<unsigned char>() + e % 2 * BUFFER;
    Word* row = reinterpret_cast<Word*>(buffer);  // [N]
    Word* column = row + N;                       // [N]
    int* preds = reinterpret_cast<int*>(column + N);  // [N], of row k
    if (down() == owner) {
      put(row, across(), x[e]);
      if constexpr (PREDECESSORS) put(preds, across(), pred[e]);
    }
    if (across() == owner) {
      Word own[T];  // [T]
#pragma unroll
      for (int r = 0; r < T; ++r) own[r] = x[r][e];
      put(column, down(), own);
    }
    // between storing row and column k and reading them; the other buffer was read before the last
    // one
    __syncthreads();
    Word left[T], right[T];  // [T] of column k, [T] of row k
    int news[PREDECESSORS ? T : 1];
    get(column, down(), left);
    get(row, across(), right);
    if constexpr (PREDECESSORS) get(preds, across(), news);
#pragma unroll
    for (int r = 0; r < T; ++r) {
      if (r == e && down() == owner) continue;  // row k stays
#pragma unroll
      for (int c = 0; c < T; ++c) {
        const Word through = A::mul(left[r], right[c]);
        if constexpr (PREDECESSORS) {
          const bool wins = improves<A, NANS>(through, x[r][c]);
          x[r][c] = wins ? through : x[r][c];
          pred[r][c] = wins ? news[c] : pred[r][c];
        } else {
          x[r][c] = A::add(x[r][c], through);
        }
      }
    }
  }

  // A thread's T words of a line of N, to shared memory and back.
  template <class W>
  SR_FN static void put(W* line, int thread, const W (&own)[T]) {
    constexpr int G = sizeof(W) > 4 ? 2 : 4;  // words of a 16-byte access
#pragma unroll
    for (int e = 0; e < T; e += G) {
      Pack<W, G> group;
#pragma unroll
      for (int i = 0; i < G; ++i) group.x[i] = own[e + i];
      *reinterpret_cast<Pack<W, G>*>(line + position(thread, e)) = group;
    }
  }
  template <class W>
  SR_FN static void get(const W* line, int thread, W (&own)[T]) {
    constexpr int G = sizeof(W) > 4 ? 2 : 4;
#pragma unroll
    for (int e = 0; e < T; e += G) {
      const Pack<W, G> group = *reinterpret_cast<const Pack<W, G>*>(line + position(thread, e));
#pragma unroll
      for (int i = 0; i < G; ++i) own[e + i] = group.x[i];
    }
  }

  // Entries outside the matrix start from any value: no entry inside depends on them.
  SR_FN void load(const MarkedMatrix<A>& from, int n) {
#pragma unroll
    for (int r = 0; r < T; ++r) {
      const int i = position(down(), r);
#pragma unroll
      for (int c = 0; c < T; c += 4) {
        const int j = position(across(), c);
        using Four = Pack<Storage, 4>;
        Four four{};
        if (VECTOR && i < n && j < n) four = *reinterpret_cast<const Four*>(&from.given(i, j));
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          if (!VECTOR && i < n && j + q < n) four.x[q] = from.given(i, j + q);
          Word& own = x[r][c + q];
          own = A::decode(four.x[q]);
          if constexpr (FRESH && PREDECESSORS) pred[r][c + q] = from.initial_pred(i, j + q, own);
          if constexpr (FRESH) own = from.with_one(i, j + q, own);
        }
        if constexpr (PREDECESSORS && !FRESH) {
          Pack<int, 4> preds{};
          if (VECTOR && i < n && j < n) preds = *reinterpret_cast<Pack<int, 4>*>(&from.pred(i, j));
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            if (!VECTOR && i < n && j + q < n) preds.x[q] = from.pred(i, j + q);
            pred[r][c + q] = preds.x[q];
          }
        }
      }
    }
  }
  SR_FN void store(const MarkedMatrix<A>& to, int n) const {
#pragma unroll
    for (int r = 0; r < T; ++r) {
      const int i = position(down(), r);
#pragma unroll
      for (int c = 0; c < T; c += 4) {
        const int j = position(across(), c);
        Pack<Storage, 4> four;
        Pack<int, 4> preds;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          four.x[q] = A::encode(x[r][c + q]);
          if constexpr (PREDECESSORS) preds.x[q] = FRESH && i == j + q ? int(NONE) : pred[r][c + q];
          if (VECTOR || i >= n || j + q >= n) continue;
          to.at(i, j + q) = four.x[q];
          if constexpr (PREDECESSORS) to.pred(i, j + q) = preds.x[q];
        }
        if (!VECTOR || i >= n || j >= n) continue;
        *reinterpret_cast<Pack<Storage, 4>*>(&to.at(i, j)) = four;
        if constexpr (PREDECESSORS) *reinterpret_cast<Pack<int, 4>*>(&to.pred(i, j)) = preds;
      }
    }
  }
};

}  // namespace sr

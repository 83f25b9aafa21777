// Kernels: closures of undirected graphs over minimum and maximum, from spanning forests
// (closures/spanning.py).
#pragma once
#include "scan.cuh"

namespace sr {

// --- the best entry of each row in another group -----------------------------------------------

struct OutsideParams {
  const void* a;      // [n][n], rows contiguous
  const int* group;   // [n]
  const int* rows;    // [count]
  int* at;            // [count]: the column, or -1
  void* value;        // [count]
  i64 pitch;          // from one row to the next, in elements
  i64 zero;           // the low bytes are a Storage
  int n, count;
};

// A block has ROWS rows, so that a group is read once for all of them. VECTOR: 16 bytes of a row
// can be read at once. The first of equal entries is taken, whatever the number of threads.
template <class A, bool VECTOR>
struct Outside {
  using Storage = typename A::Storage;
  using Compute = typename A::Compute;
  using Piece = Chunk<Storage, VECTOR>;
  static constexpr int THREADS = 256, ROWS = 4, V = Piece::V, G = V < 4 ? V : 4;
  using Groups = Pack<int, G>;
  static constexpr int BYTES = THREADS * (int(sizeof(Compute)) + 4);

  struct Best {
    Compute value;
    int at;

    SR_FN void take(Compute x, int j) {
      const bool wins = A::better(x, value);
      value = wins ? x : value;
      at = wins ? j : at;
    }
    // Of another thread, whose columns may be before the own ones.
    SR_FN void join(Compute x, int j) {
      const bool first = j >= 0 && x == value && (j < at || at < 0);
      at = A::better(x, value) || first ? j : at;
      value = A::better(x, value) ? x : value;
    }
  };

  SR_FN static void run(const OutsideParams& p) {
    const int thread = int(threadIdx.x), first = int(blockIdx.x) * ROWS;
    const Compute zero = A::decode(*reinterpret_cast<const Storage*>(&p.zero));
    const Storage* row[ROWS];  // [ROWS]
    int own[ROWS];             // [ROWS]
    Best best[ROWS];           // [ROWS]
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int i = p.rows[first + r < p.count ? first + r : first];
      row[r] = static_cast<const Storage*>(p.a) + i * p.pitch;
      own[r] = p.group[i];
      best[r] = Best{zero, -1};
    }
    for (i64 j = i64(thread) * V; j < p.n; j += THREADS * V) {
      Piece x[ROWS];  // [ROWS][V]
      Groups group[V / G];  // [V / G][G]
#pragma unroll
      for (int r = 0; r < ROWS; ++r) x[r].load_streaming(row[r] + j);
#pragma unroll
      for (int g = 0; g < V / G; ++g)
        group[g] = *reinterpret_cast<const Groups*>(p.group + j + g * G);
      compiler_fence();
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int v = 0; v < V; ++v)
          if (group[v / G].x[v % G] != own[r]) best[r].take(A::decode(x[r][v]), int(j) + v);
    }

    Compute* values = shared_memory<Compute>();              // [THREADS]
    int* places = reinterpret_cast<int*>(values + THREADS);  // [THREADS]
    for (int r = 0; r < ROWS && first + r < p.count; ++r) {
      values[thread] = best[r].value;
      places[thread] = best[r].at;
      for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();  // between storing 2 * half results and reading them
        if (thread >= half) continue;
        best[r].join(values[thread + half], places[thread + half]);
        values[thread] = best[r].value;
        places[thread] = best[r].at;
      }
      if (thread == 0) {
        p.at[first + r] = best[r].at;
        static_cast<Storage*>(p.value)[first + r] = A::encode(best[r].value);
      }
      __syncthreads();  // between reading the results of a row and storing those of the next
    }
  }
};

// --- rows of the closure of a line -------------------------------------------------------------

struct BetweenParams {
  const void* table;  // [levels][n]: ⊗ over 0, 1, 2, 4, ... gaps from each place on
  const int* place;   // [n]
  const int* spots;   // [count]: the places of the rows, ascending
  const int* lines;   // [count]: where they are written
  void* out;          // rows contiguous
  i64 pitch;          // from one row to the next, in elements
  int n, count, columns;  // blocks along the columns
};

// ⊗ of the gaps from one place to another, not before it.
template <class A>
struct Gaps {
  const typename A::Storage* table;
  int n;

  SR_FN typename A::Compute over(int begin, int end) const {
    const int level = bit_length(u32(end - begin));
    const typename A::Storage* line = table + i64(level) * n;
    return A::mul(A::decode(line[begin]), A::decode(line[end - (1 << level >> 1)]));
  }
};

// A block has ROWS rows that follow one another in the line, and a few columns. A column on the
// left of all of them is as far as the first of them, and what is between that and the row; one on
// the right likewise. VECTOR: 16 bytes of a row can be written at once.
template <class A, bool VECTOR>
struct Between {
  using Storage = typename A::Storage;
  using Compute = typename A::Compute;
  static constexpr int THREADS = 256, ROWS = 64, V = VECTOR ? 16 / int(sizeof(Storage)) : 1;
  static constexpr int BYTES = ROWS * (2 * int(sizeof(Compute)) + 8);

  SR_FN static void run(const BetweenParams& p) {
    const int thread = int(threadIdx.x), first = int(blockIdx.x) / p.columns * ROWS;
    const int rows = p.count - first < ROWS ? p.count - first : ROWS;
    const Gaps<A> gaps{static_cast<const Storage*>(p.table), p.n};
    const int low = p.spots[first], high = p.spots[first + rows - 1];
    using Ends = Pack<Compute, 2>;  // from low, and to high
    Ends* ends = shared_memory<Ends>();                    // [ROWS]
    int* spots = reinterpret_cast<int*>(ends + ROWS);      // [ROWS]
    int* lines = spots + ROWS;                             // [ROWS]
    for (int r = thread; r < rows; r += THREADS) {
      spots[r] = p.spots[first + r];
      lines[r] = p.lines[first + r];
      ends[r] = Ends{{gaps.over(low, spots[r]), gaps.over(spots[r], high)}};
    }
    __syncthreads();  // between storing what belongs to the rows and reading it
    const i64 column = (i64(blockIdx.x % unsigned(p.columns)) * THREADS + thread) * V;
    if (column >= p.n) return;
    int place[V];     // [V]
    Compute near[V];  // [V]: to the nearer end of the rows
    bool within = false;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int q = place[v] = p.place[column + v];
      const bool right = q >= high;
      within |= q > low && !right;
      near[v] = gaps.over(right ? high : q < low ? q : low, right ? q : low);
    }
#pragma unroll 4
    for (int r = 0; r < rows; ++r) {
      Pack<Storage, V> line;  // [V]
      const Ends end = ends[r];
#pragma unroll
      for (int v = 0; v < V; ++v)
        line.x[v] = A::encode(A::mul(near[v], place[v] > low ? end.x[1] : end.x[0]));
      if (within) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const int q = place[v], spot = spots[r];
          if (q <= low || q >= high) continue;
          line.x[v] = A::encode(q < spot ? gaps.over(q, spot) : gaps.over(spot, q));
        }
      }
      Storage* to = static_cast<Storage*>(p.out) + lines[r] * p.pitch + column;
      *reinterpret_cast<Pack<Storage, V>*>(to) = line;
    }
  }
};

// --- predecessors in a forest ------------------------------------------------------------------

struct TowardsParams {
  const int* place;     // [n]: of each node in the preorder
  const int* order;     // [n]: the node at each place
  const int* up;        // [n]: the place of its parent, or -1
  const int* last;      // [n]: the first place behind its subtree
  const int* top;       // [n]: the place of the root of its tree
  const int* first;     // [n + 1]: where its children begin
  const int* children;  // their places, ascending for each parent
  const int* spots;     // [count]: the places of the rows, ascending
  const int* lines;     // [count]: where they are written
  int* out;             // rows contiguous
  i64 pitch;            // from one row to the next, in elements
  int n, count, columns;  // blocks along the columns
};

// A thread has one column and follows it down the rows: the neighbour changes only where the row's
// place enters another subtree, or leaves one.
template <int UNUSED = 0>
struct Towards {
  static constexpr int THREADS = 256, ROWS = 64;
  enum { NONE = -9999 };  // no predecessor, as SciPy has it

  // The neighbour of the node at place v towards place s, and from which place on it is another.
  SR_FN static int find(const TowardsParams& p, int v, int s, int& until) {
    const int root = p.top[v], parent = p.up[v];
    const int up = parent < 0 ? int(NONE) : p.order[parent];
    if (s < root) return until = root, int(NONE);
    if (s < v) return until = v, up;
    if (s == v) return until = v + 1, int(NONE);
    if (s < p.last[v]) {
      int low = p.first[v], high = p.first[v + 1];  // the last child that is not behind s
      while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        (p.children[middle] <= s ? low : high) = middle;
      }
      const int child = p.children[low];
      return until = p.last[child], p.order[child];
    }
    if (s < p.last[root]) return until = p.last[root], up;
    return until = p.n, int(NONE);
  }

  SR_FN static void run(const TowardsParams& p) {
    const int first = int(blockIdx.x) / p.columns * ROWS;
    const int rows = p.count - first < ROWS ? p.count - first : ROWS;
    const i64 column = i64(blockIdx.x % unsigned(p.columns)) * THREADS + int(threadIdx.x);
    if (column >= p.n) return;
    const int v = p.place[column];
    int until = 0, node = 0;
    for (int r = 0; r < rows; ++r) {
      const int s = p.spots[first + r];
      if (s >= until) node = find(p, v, s, until);
      p.out[p.lines[first + r] * p.pitch + column] = node;
    }
  }
};

}  // namespace sr

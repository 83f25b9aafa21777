// Kernels: the matrix-vector product y <- (α ⊗ A ⊗ x) ⊕ (β ⊗ y). It is bound by reading A once, so
// all is arranged for that: 16-byte loads that bypass L1, eight of them in flight in each thread.
#pragma once
#include "epilogue.cuh"

namespace sr {

// The accumulator of a row: a value, ...
template <class A>
struct Accumulator {
  using Compute = typename A::Compute;
  Compute x;

  SR_FN void clear(const ProductParams&) { x = A::start(); }
  SR_FN void fold(Compute a, Compute b) { x = A::fold(x, a, b); }
  SR_FN Compute value() const { return x; }
};
// ... or, where floats are only added up, a compensated sum (Neumaier): what each addition rounds off
// is added up beside it, so that the error does not grow with k ...
template <class A>
struct SumAccumulator {
  using Compute = typename A::Compute;
  Compute x, lost;

  SR_FN void clear(const ProductParams&) {
    x = A::start();
    lost = Compute(0);
  }
  SR_FN void fold(Compute a, Compute b) {
    const Compute term = A::mul(a, b), next = x + term;
    const Compute of_term = next - x;  // Knuth's sum of two: exact whichever is the larger
    lost += (x - (next - of_term)) + (term - of_term);
    x = next;
  }
  SR_FN Compute value() const {
    const Compute exact = x + lost;
    return exact - exact == Compute(0) ? exact : x;  // infinite or NaN: nothing was lost
  }
};
// ... or, where ⊕ is logaddexp, the greatest term and the sum of exp(term - greatest): one
// exponential a term, and one logarithm at the end. The gap of equal infinities counts as 0.
template <class A>
struct LogAccumulator {
  using Compute = typename A::Compute;
  static constexpr Compute LOG2_E = Compute(1.44269504088896340736);
  Compute high, sum;  // the greatest term; the sum, in which it counts 1

  SR_FN void clear(const ProductParams&) {
    high = -infinity<Compute>();
    sum = Compute(0);
  }
  SR_FN void fold(Compute a, Compute b) {
    const Compute term = A::mul(a, b), gap = term == high ? Compute(0) : term - high;
    const Compute e = exp2_approx(-LOG2_E * abs(gap));
    const bool higher = gap > Compute(0);
    sum = higher ? fma(sum, e, Compute(1)) : sum + e;
    high = higher ? term : high;
  }
  SR_FN Compute value() const { return high + log(sum); }
};
// Any of them, with α scaling each entry of A, or else of x, before the two meet.
template <class Sum, class A, bool LEFT>
struct Scaled {
  using Compute = typename A::Compute;
  Sum sum;
  Compute alpha;

  SR_FN void clear(const ProductParams& p) {
    sum.clear(p);
    alpha = scalar<A>(p.alpha);
  }
  SR_FN void fold(Compute a, Compute b) {
    if constexpr (LEFT) sum.fold(A::scale(alpha, a), b);
    else sum.fold(a, A::scale(alpha, b));
  }
  SR_FN Compute value() const { return sum.value(); }
};

// A block of 256 threads computes ROWS * GROUPS rows: ROWS for each of GROUPS groups of LANES
// threads, which share the steps of k. The parameters are those of a product with x as B and y as
// C, one column each; tiles_m counts blocks along m.
//
//     K_MAJOR (A row-major)             else (A column-major)
//       lanes -> k                        groups -> m, V rows each
//     m | g0: 0 1 2 3 0 1 2 3           m | g0 g1 g2 ...    lane 0
//       v g1: 0 1 2 3 ...               k v g0 g1 g2 ...    lane 1
//
// K_MAJOR: k is the contiguous direction of A, and neighbouring threads lie along it; else along m.
// VECTOR: 16 bytes of A (and, along k, of x) can be read at once.
template <class Sum, class A, bool K_MAJOR, bool VECTOR, int LANES, int ROWS>
struct Vector {
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int THREADS = 256, GROUPS = THREADS / LANES;
  using Piece = Chunk<Storage, VECTOR>;
  static constexpr int V = Piece::V;  // elements of a load
  static constexpr int ITEMS = K_MAJOR ? 8 / ROWS : 8;  // eight loads under way in a thread
  static_assert(THREADS % LANES == 0, "lanes divide a block");
  static_assert(ITEMS > 0, "a thread has at most eight rows");
  static_assert(K_MAJOR || ROWS == V, "along m, a thread's rows are one load");
  // Whether a group's rows are adjacent: else neighbouring groups, whose lanes read little of a row,
  // have neighbouring rows, so that a warp reads whole lines.
  static constexpr bool ADJACENT = !K_MAJOR || LANES >= 8;
  // Lanes of a row in one warp; the lanes that end with the sums of their own rows, and how many.
  static constexpr int WIDTH = LANES < 32 ? LANES : 32, OWNERS = ROWS < WIDTH ? ROWS : WIDTH;
  static constexpr int OWNED = ROWS / OWNERS;

  // This thread's place among those of its row, the group of its rows, and row r of a group in the
  // block.
  SR_FN static int lane() { return K_MAJOR ? int(threadIdx.x) % LANES : int(threadIdx.x) / GROUPS; }
  SR_FN static int group() {
    return K_MAJOR ? int(threadIdx.x) / LANES : int(threadIdx.x) % GROUPS;
  }
  SR_FN static int row(int r, int group) {
    return ADJACENT ? group * ROWS + r : r * GROUPS + group;
  }
  SR_FN static int row(int r) { return row(r, group()); }

  SR_FN static void run(const ProductParams& p) {
    const i64 row0 = i64(blockIdx.x % u32(p.tiles_m)) * (ROWS * GROUPS);
    const int split = int(blockIdx.x / u32(p.tiles_m)), k0 = split * p.k_split;
    const int k1 = p.k - k0 < p.k_split ? p.k : k0 + p.k_split;
    const Storage* x = static_cast<const Storage*>(p.b);
    Sum sums[ROWS];  // [ROWS]
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r].clear(p);
    if constexpr (K_MAJOR) fold_along_k(p, sums, row0, k0, k1, x);
    else fold_along_m(p, sums, row0, k0, k1, x);
    Compute acc[ROWS];  // [ROWS]
#pragma unroll
    for (int r = 0; r < ROWS; ++r) acc[r] = sums[r].value();
    if constexpr (K_MAJOR) {
      join_warp<ROWS, WIDTH / 2>(acc);
      if constexpr (LANES > 32) {
        join_warps(p, acc, row0, split);
      } else if (lane() % (WIDTH / OWNERS) == 0) {
#pragma unroll
        for (int j = 0; j < OWNED; ++j)
          store(p, row0 + row(lane() / (WIDTH / OWNERS) * OWNED + j), split, acc[j]);
      }
    } else {
      if constexpr (LANES > 1) join_lanes(acc);
      if (lane() > 0) return;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) store(p, row0 + row(r), split, acc[r]);
    }
  }

  // The sum of a row over the steps of k of this block.
  SR_FN static void store(const ProductParams& p, i64 i, int split, Compute sum) {
    if (i >= p.m) return;
    if (p.splits > 1) {
      static_cast<Compute*>(p.partials)[i64(split) * p.m + i] = sum;
    } else {
      Storage* y = static_cast<Storage*>(p.c) + i * p.c_m;
      *y = LinearCombination<A>(p)(sum, p.mode & READ_C ? *y : Storage{});
    }
  }

  // Steps k0 to k1 - 1 of this lane, for ROWS rows that are GROUPS apart.
  SR_FN static void fold_along_k(const ProductParams& p, Sum (&acc)[ROWS], i64 row0, int k0, int k1,
                                 const Storage* x) {
    const Storage* a[ROWS];  // [ROWS]: rows beyond the last are clamped to it, and dropped later
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const i64 i = row0 + row(r);
      a[r] = static_cast<const Storage*>(p.a) + (i < p.m ? i : p.m - 1) * p.a_m;
    }
    const i64 a_k = VECTOR ? 1 : p.a_k, x_k = VECTOR ? 1 : p.b_k;
    i64 k = k0 + lane() * V;
#pragma unroll 1
    for (; k + (ITEMS - 1) * LANES * V + V <= k1; k += ITEMS * LANES * V)
      fold_loads<ITEMS>(acc, a, x, k, a_k, x_k);
    if constexpr (ITEMS > 1) {
#pragma unroll 1
      for (; k + V <= k1; k += LANES * V) fold_loads<1>(acc, a, x, k, a_k, x_k);
    }
    for (; k < k1; ++k) {  // less than a load: in one of the lanes
      const Compute right = A::decode(x[k * x_k]);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) acc[r].fold(A::decode(a[r][k * a_k]), right);
    }
  }

  // N loads of each row, LANES * V steps of k apart.
  template <int N>
  SR_FN static void fold_loads(Sum (&acc)[ROWS], const Storage* const (&a)[ROWS],
                               const Storage* x, i64 k, i64 a_k, i64 x_k) {
    Piece left[N][ROWS], right[N];  // [N][ROWS] and [N], of V steps of k each
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const i64 at = k + i * LANES * V;
      right[i].load(x + at * x_k);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) left[i][r].load_streaming(a[r] + at * a_k);
    }
    compiler_fence();
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const Compute by = A::decode(right[i][v]);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) acc[r].fold(A::decode(left[i][r][v]), by);
      }
  }

  // The same for ROWS adjacent rows, LANES steps of k apart.
  SR_FN static void fold_along_m(const ProductParams& p, Sum (&acc)[ROWS], i64 row0, int k0, int k1,
                                 const Storage* x) {
    const i64 first = row0 + row(0), left = p.m - first;
    if (left <= 0) return;
    int k = k0 + lane();
    const Storage* a = static_cast<const Storage*>(p.a) + first * p.a_m + k * p.a_k;
    x += k * p.b_k;
    const i64 down = LANES * p.a_k, x_down = LANES * p.b_k;
    if (left >= V) {
#pragma unroll 1
      for (; k + (ITEMS - 1) * LANES < k1; k += ITEMS * LANES) {
        Piece rows[ITEMS];  // [ITEMS], of V rows each
        Storage by[ITEMS];  // [ITEMS]
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
          rows[i].load_streaming(a);
          by[i] = *x;
          a += down;
          x += x_down;
        }
        compiler_fence();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) fold(acc, rows[i], by[i]);
      }
#pragma unroll 1
      for (; k < k1; k += LANES, a += down, x += x_down) {
        Piece rows;
        rows.load_streaming(a);
        fold(acc, rows, *x);
      }
    } else {  // fewer than V rows; V > 1, so they are contiguous
      for (; k < k1; k += LANES, a += down, x += x_down) {
        const Compute by = A::decode(*x);
#pragma unroll
        for (int v = 0; v < ROWS; ++v)
          acc[v].fold(A::decode(a[v < left ? v : 0]), by);
      }
    }
  }

  SR_FN static void fold(Sum (&acc)[ROWS], const Piece& rows, Storage x) {
    const Compute by = A::decode(x);
    if constexpr (!K_MAJOR) {
#pragma unroll
      for (int v = 0; v < V; ++v) acc[v].fold(A::decode(rows[v]), by);
    }
  }

  // Join the partial results of N rows of the lanes of a warp that share them, HALF lanes apart, HALF /
  // 2, and so on. While there are several rows, a lane keeps one half of them and gives the other away,
  // so that it ends with acc[0], ..., acc[OWNED - 1].
  template <int N, int HALF>
  SR_FN static void join_warp(Compute (&acc)[ROWS]) {
    if constexpr (HALF > 0) {
      if constexpr (N > 1) {
        const bool upper = threadIdx.x & HALF;
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
          const Compute kept = upper ? acc[i + N / 2] : acc[i];
          const Compute given = upper ? acc[i] : acc[i + N / 2];
          acc[i] = A::add(kept, shuffle_xor(given, HALF));
        }
      } else {
        acc[0] = A::add(acc[0], shuffle_xor(acc[0], HALF));
      }
      join_warp<(N > 1 ? N / 2 : 1), HALF / 2>(acc);
    }
  }

  // The same for the warps that share a row, in their order.
  SR_FN static void join_warps(const ProductParams& p, const Compute (&acc)[ROWS], i64 row0,
                               int split) {
    constexpr int WARPS = LANES / 32;
    Compute* shared = shared_memory<Compute>();  // [GROUPS][WARPS][ROWS]
    const int thread = int(threadIdx.x), lane = thread % 32;
    if (lane % (32 / OWNERS) == 0) {
#pragma unroll
      for (int j = 0; j < OWNED; ++j)
        shared[thread / 32 * ROWS + lane / (32 / OWNERS) * OWNED + j] = acc[j];
    }
    __syncthreads();  // between storing the warps' sums and reading them
    if (thread >= GROUPS * ROWS) return;
    const Compute* own = shared + thread / ROWS * (WARPS * ROWS) + thread % ROWS;
    Compute sum = own[0];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) sum = A::add(sum, own[w * ROWS]);
    store(p, row0 + row(thread % ROWS, thread / ROWS), split, sum);
  }

  // Lanes' partial results of each row along m, joined in a fixed order into lane 0.
  SR_FN static void join_lanes(Compute (&acc)[ROWS]) {
    Compute* shared = shared_memory<Compute>() + threadIdx.x;  // [ROWS][THREADS]
#pragma unroll
    for (int r = 0; r < ROWS; ++r) shared[r * THREADS] = acc[r];
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2) {
      __syncthreads();  // between storing 2 * half partial results and reading them
      if (lane() < half) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          acc[r] = A::add(acc[r], shared[r * THREADS + half * GROUPS]);
          shared[r * THREADS] = acc[r];
        }
      }
    }
  }
};

// Kernel: y from the partial results of a product whose k was split. A block has 32 rows; its warps
// share the partial results and join theirs in a fixed order.
template <class A>
struct ReduceVector {
  SR_FN static void run(const ProductParams& p) {
    using Compute = typename A::Compute;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, warps = blockDim.x / 32;
    const i64 i = i64(blockIdx.x) * 32 + lane;
    Compute sum = A::start();
    if (i < p.m) {
      const Compute* partial = static_cast<const Compute*>(p.partials) + i;  // [splits][m]
#pragma unroll 4
      for (int s = warp; s < p.splits; s += warps) sum = A::add(sum, partial[i64(s) * p.m]);
    }
    Compute* shared = shared_memory<Compute>() + threadIdx.x;  // [warps][32]
    *shared = sum;
    for (int half = warps / 2; half > 0; half /= 2) {
      __syncthreads();  // between storing 2 * half sums and reading them
      if (warp < half) *shared = sum = A::add(sum, shared[half * 32]);
    }
    if (warp > 0 || i >= p.m) return;
    auto* y = static_cast<typename A::Storage*>(p.c) + i * p.c_m;
    *y = LinearCombination<A>(p)(sum, p.mode & READ_C ? *y : typename A::Storage{});
  }
};

}  // namespace sr

// The matrix-vector product y <- (α ⊗ A ⊗ x) ⊕ (β ⊗ y), bound by reading A once.
#pragma once
#include "epilogue.cuh"

namespace sr {

// What a thread sums up in: a value, ...
template <class A>
struct Accumulator {
  using Compute = typename A::Compute;
  Compute x;

  SR_FN void clear(const ProductParams&) { x = A::start(); }
  SR_FN void fold(Compute a, Compute b) { x = A::fold(x, a, b); }
  SR_FN Compute value() const { return x; }
};
// ... or, where ⊕ is logaddexp, the greatest term and the sum of exponentials of the others below it:
// one exponential a term, and one logarithm in the end. Equal infinities have no distance.
template <class A>
struct LogAccumulator {
  using Compute = typename A::Compute;
  static constexpr Compute LOG2_E = Compute(1.44269504088896340736);
  Compute high, sum;

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
// Either of them, with α scaling each entry of A, or else of x, before the two meet.
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

// A block of 256 threads takes ROWS * GROUPS rows; LANES threads share each row's k. The parameters
// are a product's with x as B and y as C, one column each; tiles_m counts blocks along m.
//
// K_UNIT: k is the contiguous direction, and neighbouring threads lie along it; else along m.
// WIDE: 16 bytes of A (and along k, of x) can be read at once.
template <class Sum, class A, bool K_UNIT, bool WIDE, int LANES, int ROWS>
struct Vector {
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int THREADS = 256, GROUPS = THREADS / LANES;
  using Piece = Chunk<Storage, WIDE>;
  static constexpr int V = Piece::V;
  static constexpr int ITEMS = K_UNIT ? 8 / ROWS : 8;  // eight loads under way in a thread
  static constexpr int NEXT = K_UNIT ? 1 : GROUPS;     // from a thread to the next of its row
  static_assert(ITEMS > 0 && (K_UNIT || ROWS == V), "along m, a chunk is a thread's rows");

  SR_FN static int lane() { return K_UNIT ? int(threadIdx.x) % LANES : int(threadIdx.x) / GROUPS; }
  SR_FN static int group() { return K_UNIT ? int(threadIdx.x) / LANES : int(threadIdx.x) % GROUPS; }
  SR_FN static int row(int r) { return K_UNIT ? r * GROUPS + group() : group() * V + r; }

  SR_FN static void run(const ProductParams& p) {
    const i64 row0 = i64(blockIdx.x % u32(p.tiles_m)) * (ROWS * GROUPS);
    const int split = int(blockIdx.x / u32(p.tiles_m)), k0 = split * p.k_split;
    const int k1 = p.k - k0 < p.k_split ? p.k : k0 + p.k_split;
    const Storage* x = static_cast<const Storage*>(p.b);
    Sum sums[ROWS];  // [ROWS]
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r].clear(p);
    if constexpr (K_UNIT) along_k(p, sums, row0, k0, k1, x);
    else along_m(p, sums, row0, k0, k1, x);
    Compute acc[ROWS];  // [ROWS]
#pragma unroll
    for (int r = 0; r < ROWS; ++r) acc[r] = sums[r].value();
    if constexpr (LANES > 1) join_lanes(acc);
    if (lane() > 0) return;
    const LinearCombination<A> join(p);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const i64 i = row0 + row(r);
      if (i >= p.m) continue;
      if (p.splits > 1) {
        static_cast<Compute*>(p.partials)[i64(split) * p.m + i] = acc[r];
      } else {
        Storage* y = static_cast<Storage*>(p.c) + i * p.c_m;
        *y = join(acc[r], p.mode & READ_C ? *y : Storage{});
      }
    }
  }

  SR_FN static void along_k(const ProductParams& p, Sum (&acc)[ROWS], i64 row0, int k0, int k1,
                            const Storage* x) {
    const Storage* a[ROWS];  // [ROWS]: rows beyond the last are read as the last, and dropped
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const i64 i = row0 + row(r);
      a[r] = static_cast<const Storage*>(p.a) + (i < p.m ? i : p.m - 1) * p.a_m;
    }
    const i64 a_k = WIDE ? 1 : p.a_k, x_k = WIDE ? 1 : p.b_k;
    i64 k = k0 + lane() * V;
#pragma unroll 1
    for (; k + (ITEMS - 1) * LANES * V + V <= k1; k += ITEMS * LANES * V)
      take<ITEMS>(acc, a, x, k, a_k, x_k);
#pragma unroll 1
    for (; k + V <= k1; k += LANES * V) take<1>(acc, a, x, k, a_k, x_k);
    for (; k < k1; ++k) {  // part of a chunk, in one of the lanes
      const Compute right = A::decode(x[k * x_k]);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) acc[r].fold(A::decode(a[r][k * a_k]), right);
    }
  }

  template <int N>
  SR_FN static void take(Sum (&acc)[ROWS], const Storage* const (&a)[ROWS], const Storage* x,
                         i64 k, i64 a_k, i64 x_k) {
    Piece left[N][ROWS], right[N];  // [N][ROWS] and [N] of V steps of k
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

  SR_FN static void along_m(const ProductParams& p, Sum (&acc)[ROWS], i64 row0, int k0, int k1,
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
        Piece rows[ITEMS];
        Storage by[ITEMS];
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
    } else {  // the last rows; V > 1, so A's rows are side by side
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
    if constexpr (!K_UNIT) {
#pragma unroll
      for (int v = 0; v < V; ++v) acc[v].fold(A::decode(rows[v]), by);
    }
  }

  // The lanes' parts of each row, joined in a fixed order into lane 0.
  SR_FN static void join_lanes(Compute (&acc)[ROWS]) {
    Compute* shared = shared_memory<Compute>() + threadIdx.x;  // [ROWS][THREADS]
#pragma unroll
    for (int r = 0; r < ROWS; ++r) shared[r * THREADS] = acc[r];
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2) {
      if constexpr (K_UNIT && LANES <= 32) __syncwarp();
      else __syncthreads();
      if (lane() < half) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          acc[r] = A::add(acc[r], shared[r * THREADS + half * NEXT]);
          shared[r * THREADS] = acc[r];
        }
      }
    }
  }
};

// y from the parts of a product whose k was split: 32 rows a block, whose warps share the parts and
// join theirs in a fixed order.
template <class A>
struct ReduceVector {
  SR_FN static void run(const ProductParams& p) {
    using Compute = typename A::Compute;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, warps = blockDim.x / 32;
    const i64 i = i64(blockIdx.x) * 32 + lane;
    Compute sum = A::start();
    if (i < p.m) {
      const Compute* part = static_cast<const Compute*>(p.partials) + i;
#pragma unroll 4
      for (int s = warp; s < p.splits; s += warps) sum = A::add(sum, part[i64(s) * p.m]);
    }
    Compute* shared = shared_memory<Compute>() + threadIdx.x;  // [warps][32]
    *shared = sum;
    for (int half = warps / 2; half > 0; half /= 2) {
      __syncthreads();
      if (warp < half) *shared = sum = A::add(sum, shared[half * 32]);
    }
    if (warp > 0 || i >= p.m) return;
    auto* y = static_cast<typename A::Storage*>(p.c) + i * p.c_m;
    *y = LinearCombination<A>(p)(sum, p.mode & READ_C ? *y : typename A::Storage{});
  }
};

}  // namespace sr

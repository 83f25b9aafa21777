// Kernels: weights of a sparse elimination's edges (semiring_mm/hierarchy/) from those of a graph.
//
//     Place      weights of arcs to the edges they lie on
//     Triangles  edges ⊕= the ways through lower neighbours, level by level
//     Around     whether a way up an edge and back is better than none
//
// Every edge leads up, from its tail to its head, and has a weight each way: `out` up and `back`
// down. A node's edges lie side by side, by ascending heads. Of two of them, to heads a < b, the
// ways a -> node -> b and b -> node -> a are joined to the edge from a to b, which is there. Nodes of
// a level are no neighbours of each other, so that the edges of their tails are complete, and only
// edges of higher levels are joined to.
#pragma once
#include "base.cuh"

namespace sr {

// The same fields in the same order in semiring_mm/gpu/customize.py.
struct CustomizeParams {
  void* out;            // [edges] of Compute
  void* back;           // [edges] of Compute; may be `out`
  void* matrix;         // [core][core] of Compute
  const int* head;      // [edges]
  const void* pairs;    // [...] of Pairs, level by level
  const int* cuts;      // [levels + 1]: where the pairs of each level begin
  const i64* slot;      // [count]: 2 edge upward, 2 edge + 1 downward, -1 - (i core + j) in the core
  const void* weight;   // [count] of Storage
  u32* improves;        // set to 1 if a way up an edge and back is better than none
  i64 zero, one;        // the low bytes are a Compute
  i64 count;            // arcs of Place, edges of Around
  int fringe, core;
  int both;             // arcs in the core stand for both directions
  int begin, end;       // levels of Triangles: with several blocks there is one
  int shift;            // 2^shift threads take one of Pairs
};

// An edge with each of those behind it of the same tail, up to `end`. The edges of its head, which is
// lower than theirs, are [row, row_end); a head in the core has row = -1 - its number there.
struct alignas(16) Pairs {
  int edge, end;
  int row, row_end;
};

template <int BYTES>
struct WordOf { using Type = u32; };
template <>
struct WordOf<8> { using Type = u64; };

// *at ⊕= x, where other threads do the same. ⊕ selects, so that their order does not matter.
template <class A>
SR_FN void join(typename A::Compute* at, typename A::Compute x) {
  using Compute = typename A::Compute;
  using Word = typename WordOf<sizeof(Compute)>::Type;
  Word* const word = reinterpret_cast<Word*>(at);
  Word seen = load_current(word);
  for (;;) {
    const Word best = bits_as<Word>(A::add(bits_as<Compute>(seen), x));
    if (best == seen) return;
    const Word found = compare_exchange(word, seen, best);
    if (found == seen) return;
    seen = found;
  }
}

template <class A>
struct Place {
  using Compute = typename A::Compute;

  SR_FN static void run(const CustomizeParams& p) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= p.count) return;
    const i64 slot = p.slot[i];
    const Compute x = A::decode(static_cast<const typename A::Storage*>(p.weight)[i]);
    if (slot >= 0) {
      join<A>(static_cast<Compute*>(slot & 1 ? p.back : p.out) + slot / 2, x);
      return;
    }
    Compute* const matrix = static_cast<Compute*>(p.matrix);
    const i64 entry = -1 - slot;
    join<A>(matrix + entry, x);
    if (p.both) join<A>(matrix + entry % p.core * p.core + entry / p.core, x);
  }
};

// SAME: `back` is `out`.
template <class A, bool SAME>
struct Triangles {
  using Compute = typename A::Compute;

  // The edge to b in a row that has it; it lies at `from` or behind.
  SR_FN static int find(const int* head, int from, int end, int b) {
    if (head[from] == b) return from;
    int low = from + 1, high = end - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (head[middle] < b) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  SR_FN static void close(const CustomizeParams& p, Pairs pairs, int lane) {
    Compute* const out = static_cast<Compute*>(p.out);
    Compute* const back = static_cast<Compute*>(SAME ? p.out : p.back);
    const Compute from_a = back[pairs.edge], to_a = out[pairs.edge];
    for (int g = pairs.edge + 1 + lane; g < pairs.end; g += 1 << p.shift) {
      const int b = p.head[g];
      const Compute there = A::mul(from_a, out[g]), again = A::mul(back[g], to_a);
      if (pairs.row >= 0) {
        // the other heads are among those of a, in the same order
        const int e = find(p.head, pairs.row + (g - pairs.edge - 1), pairs.row_end, b);
        join<A>(out + e, there);
        if constexpr (!SAME) join<A>(back + e, again);
      } else {
        const i64 i = -1 - pairs.row, j = b - p.fringe;
        join<A>(static_cast<Compute*>(p.matrix) + i * p.core + j, there);
        join<A>(static_cast<Compute*>(p.matrix) + j * p.core + i, again);
      }
    }
  }
  SR_FN static void run(const CustomizeParams& p) {
    const int thread = int(blockIdx.x * blockDim.x + threadIdx.x);
    const int lane = thread & ((1 << p.shift) - 1), step = int(gridDim.x * blockDim.x) >> p.shift;
    for (int level = p.begin; level < p.end; ++level) {
      const int last = p.cuts[level + 1];
      for (int i = p.cuts[level] + (thread >> p.shift); i < last; i += step)
        close(p, static_cast<const Pairs*>(p.pairs)[i], lane);
      __syncthreads();  // between joining edges and reading them as complete
    }
  }
};

template <class A>
struct Around {
  using Compute = typename A::Compute;

  SR_FN static Compute scalar(const i64& bits) { return *reinterpret_cast<const Compute*>(&bits); }
  SR_FN static void run(const CustomizeParams& p) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= p.count) return;
    const Compute there = static_cast<const Compute*>(p.out)[i];
    const Compute again = static_cast<const Compute*>(p.back)[i];
    const Compute zero = scalar(p.zero), one = scalar(p.one);
    if (there == zero || again == zero) return;
    if (A::add(A::mul(there, again), one) != one) atomic_or(p.improves, 1u);
  }
};

}  // namespace sr

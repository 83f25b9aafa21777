// Kernels: loads of edges in all shortest paths, by reverse sweeps (semiring_mm/hierarchy/gradient.py)
// over labels that are there.
//
//     CountUp    numbers of shortest paths up from the sources, a block for each group
//     CountDown  numbers of shortest paths to the nodes of a level, from those of their heads
//     Leaves     both of whole subtrees that fit into shared memory, one after the other
//     HandDown   demands of the nodes of a level, to their heads and edges
//     HandUp     demands of the sources' ancestors, back to the sources and to edges
//
// A demand is kept divided by the number of paths of its node: a head receives it times the number
// of paths of the edge, and nothing else. Edges receive that times the head's number of paths.
//
// A warp takes a group: 32 adjacent columns, which are sources. Nodes are named by positions of the
// elimination, heads are higher ones. Subtrees are ranges of positions. Levels, of the nodes above
// the subtrees, are of heights: no node of a level is a head of another.
#pragma once
#include "base.cuh"

namespace sr {

// The same fields in the same order in semiring_mm/gpu/gradient.py.
struct LoadParams {
  const void* labels;         // [slots][columns] of T: distances
  const int* slot;            // [nodes]
  const int* upper;           // [nodes]: of those above the subtrees
  double* paths;              // [upper][columns]: numbers of paths
  int* power;                 // [upper][columns]: their exponents
  double* demand;             // [upper][columns]
  const int* parent;          // [nodes]
  const int* first;           // [nodes + 1]
  const int* head;            // [edges]
  const void* out;            // [edges] of T: from the tail to the head
  const void* back;           // [edges] of T: from the head to the tail
  const double* out_count;    // [edges]: numbers of shortest paths
  const double* back_count;   // [edges]
  const int* out_power;       // [edges]
  const int* back_power;      // [edges]
  double* out_load;           // [edges]
  double* back_load;          // [edges]
  const double* seed;         // [nodes]: the demand of each; null: 1
  double* ends;               // [nodes]: demands, added up; where all paths count alone
  u32* missed;                // [nodes]: sources without a path to it
  u32* large;                 // is set to 1 if there are too many paths for numbers without power
  const int* sources;         // [columns]: positions; `nodes` where there is none
  const int* ascending;       // [columns]: the same, in each group ascending
  int* met;                   // [nodes][columns / 32]: the row of an ancestor of the group, or -1
  int* visited;               // [columns / 32][rows]: the ancestors, ascending
  int* lengths;               // [columns / 32]: how many
  double* up_paths;           // [columns / 32][rows][32]: numbers of paths that lead up alone
  int* up_power;              // [columns / 32][rows][32]
  double* up_demand;          // [columns / 32][rows][32]
  const int* order;           // [upper]: nodes, level by level
  const void* leaves;         // of Leaf
  const void* edges;          // [edges] of LeafEdge<T>, of the subtrees
  i64 slack;                  // by how much lengths may differ that count as equal
  int nodes, columns, rows;
  int stress;                 // whether each path counts 1, not those of two nodes together
  int begin, count;           // of a level, its nodes in `order`; of a launch, some `leaves`
  int shift;                  // 2^shift warps share the edges of a node of a level
  int room;                   // rows of a subtree in shared memory
};

// A subtree: the positions from `top` downwards. Each has a row; then those of the heads of `top`,
// which are the heads of all above it.
struct Leaf { int top, nodes; };
// Of an edge the row of its head, and what leads from there to the tail.
template <class T>
struct alignas(16) LeafEdge {
  double count;
  T weight;
  int row;
};

// m RADIX^x, m < RADIX; 0, or m >= 1. Without WIDE x is 0.
template <bool WIDE>
struct PathCount {
  static constexpr double RADIX = 0x1p400, PART = 0x1p-400;
  double m;
  int x;

  SR_FN static PathCount of(double m, const int* powers, i64 i) {
    return {m, WIDE ? powers[i] : 0};
  }
  SR_FN PathCount operator*(PathCount other) const {
    const double product = m * other.m;
    if constexpr (!WIDE) return {product, 0};
    const bool much = product >= RADIX;
    return {much ? product * PART : product, product > 0 ? x + other.x + int(much) : 0};
  }
  // A part below RADIX^-1 of the other is nothing.
  SR_FN PathCount operator+(PathCount other) const {
    if constexpr (!WIDE) return {m + other.m, 0};
    const int top = x > other.x ? x : other.x;
    const double total = m * scale(x - top) + other.m * scale(other.x - top);
    const bool much = total >= RADIX;
    return {much ? total * PART : total, top + int(much)};
  }
  // RADIX^power of a share, which is at most 1.
  SR_FN static double scale(int power) {
    if constexpr (!WIDE) return 1;
    return power >= 0 ? 1.0 : power == -1 ? PART : power == -2 ? PART * PART : 0.0;
  }
};

// T: of labels.
template <class T, bool WIDE>
struct Gradient {
  using Paths = PathCount<WIDE>;
  static constexpr int WARPS = 8, LANES = 32;
  static constexpr int BYTES = WARPS * LANES * 16;  // of shared memory

  const LoadParams& p;
  const int lane, warp, groups;
  int group;

  SR_FN explicit Gradient(const LoadParams& params)
      : p(params), lane(int(threadIdx.x) % LANES), warp(int(threadIdx.x) / LANES),
        groups(params.columns / LANES), group(0) {}

  // --- where things lie --------------------------------------------------------------------------

  SR_FN i64 column() const { return i64(group) * LANES + lane; }
  SR_FN i64 at(int v) const { return i64(p.upper[v]) * p.columns + column(); }
  SR_FN i64 up(int row) const { return (i64(group) * p.rows + row) * LANES + lane; }
  SR_FN int& met(int v) const { return p.met[i64(v) * groups + group]; }
  SR_FN int& visited(int i) const { return p.visited[i64(group) * p.rows + i]; }
  SR_FN T label(int v) const {
    return static_cast<const T*>(p.labels)[i64(p.slot[v]) * p.columns + column()];
  }
  SR_FN T out(int e) const { return static_cast<const T*>(p.out)[e]; }
  SR_FN T back(int e) const { return static_cast<const T*>(p.back)[e]; }
  SR_FN Paths paths(int v) const { return Paths::of(p.paths[at(v)], p.power, at(v)); }
  SR_FN Paths up_paths(int row) const { return Paths::of(p.up_paths[up(row)], p.up_power, up(row)); }
  SR_FN void set_up(int row, Paths x) const {
    p.up_paths[up(row)] = x.m;
    if constexpr (WIDE) p.up_power[up(row)] = x.x;
  }
  SR_FN static void add_to(double* sum, double x) {  // of all lanes
#pragma unroll
    for (int mask = LANES / 2; mask; mask /= 2) x += shuffle_xor(x, mask);
    if (int(threadIdx.x) % LANES == 0) atomic_add(sum, x);
  }
  // What the warps of a block have, from first to last of 2^shift; all threads call it.
  SR_FN Paths joined(Paths x, int shift) const {
    if (shift == 0) return x;
    double* const m = shared_memory<double>();               // [WARPS][LANES]
    int* const power = reinterpret_cast<int*>(m + WARPS * LANES);  // [WARPS][LANES]
    m[threadIdx.x] = x.m;
    power[threadIdx.x] = x.x;
    __syncthreads();  // between writing the parts and reading them
    const int begin = warp >> shift << shift;
    x = {m[begin * LANES + lane], power[begin * LANES + lane]};
    for (int i = 1; i < 1 << shift; ++i) {
      const int k = (begin + i) * LANES + lane;
      x = x + Paths{m[k], power[k]};
    }
    __syncthreads();  // between reading the parts and writing the next
    return x;
  }

  // --- up ----------------------------------------------------------------------------------------

  // The ancestors of a group's sources, ascending. Subtrees are ranges: a parent beyond the next
  // source is an ancestor of that one, too.
  SR_FN void climb() const {
    const int* const source = p.ascending + group * LANES;
    int count = 0, next = 0, v = source[0];
    while (v < p.nodes) {
      visited(count) = v;
      met(v) = count++;
      while (next < LANES && source[next] == v) ++next;
      const int above = p.parent[v], other = next < LANES ? source[next] : p.nodes;
      v = above < other ? above : other;
    }
    p.lengths[group] = count;
  }
  SR_FN void count_up() {
    group = int(blockIdx.x);
    if (threadIdx.x == 0) climb();
    __syncthreads();  // between finding the ancestors and reading them
    const int count = p.lengths[group], own = p.sources[column()];
    for (int i = warp; i < count; i += WARPS) set_up(i, {0, 0});
    __syncthreads();  // between clearing the rows and setting the sources'
    if (warp == 0 && own < p.nodes) set_up(met(own), {1, 0});
    __syncthreads();  // between setting the sources' rows and reading them
    for (int i = 0; i < count; ++i) {
      const int v = visited(i);
      const Paths here = up_paths(i);
      if (!ballot(here.m > 0)) continue;  // as all warps see it
      const T x = label(v);
      for (int e = p.first[v] + warp; e < p.first[v + 1]; e += WARPS) {
        const int u = p.head[e];
        if (here.m > 0 && x + out(e) <= label(u) + T(p.slack)) {
          const int row = met(u);
          set_up(row, up_paths(row) + here * Paths::of(p.out_count[e], p.out_power, e));
        }
      }
      __syncthreads();  // between adding to the rows above and reading them
    }
  }
  SR_FN void hand_up() {
    group = int(blockIdx.x);
    for (int i = p.lengths[group] - 1; i >= 0; --i) {
      const int v = visited(i);
      const Paths here = up_paths(i);
      if (!ballot(here.m > 0)) continue;  // as all warps see it
      const T x = label(v);
      double sum = 0;
      for (int e = p.first[v] + warp; e < p.first[v + 1]; e += WARPS) {
        const int u = p.head[e];
        const bool tie = here.m > 0 && x + out(e) <= label(u) + T(p.slack);
        if (!ballot(tie)) continue;
        double part = 0;
        if (tie) {
          const int row = met(u);
          const Paths on = Paths::of(p.out_count[e], p.out_power, e);
          part = p.up_demand[up(row)] * on.m;
          if constexpr (WIDE) part *= Paths::scale(here.x + on.x - up_paths(row).x);
        }
        sum += part;
        add_to(p.out_load + e, part * here.m);
      }
      double* const sums = shared_memory<double>();  // [WARPS][LANES]
      sums[threadIdx.x] = sum;
      __syncthreads();  // between writing the parts and reading them
      if (warp == 0) {
        for (int k = 1; k < WARPS; ++k) sum += sums[k * LANES + lane];
        p.up_demand[up(i)] += sum;
      }
      __syncthreads();  // between adding up and reading the sum
    }
  }

  // --- down --------------------------------------------------------------------------------------

  // The node of a level that this warp takes, with others; -1: none. And its group.
  SR_FN int taken() {
    const i64 item = (i64(blockIdx.x) * WARPS + warp) >> p.shift;
    group = int(item % groups);
    return item < i64(p.count) * groups ? p.order[p.begin + item / groups] : -1;
  }
  SR_FN void count_down() {
    const int v = taken(), slice = warp & ((1 << p.shift) - 1);
    Paths sum{0, 0};
    if (v >= 0) {
      const T limit = label(v) + T(p.slack);
      const int row = met(v);
      if (slice == 0 && row >= 0) sum = up_paths(row);
#pragma unroll 4
      for (int e = p.first[v] + slice; e < p.first[v + 1]; e += 1 << p.shift) {
        const int u = p.head[e];
        if (label(u) + back(e) <= limit)
          sum = sum + paths(u) * Paths::of(p.back_count[e], p.back_power, e);
      }
    }
    sum = joined(sum, p.shift);
    if (v < 0 || slice) return;
    const int own = p.sources[column()];
    if (!WIDE && !(sum.m < Paths::RADIX)) *p.large = 1;
    p.paths[at(v)] = sum.m;
    if constexpr (WIDE) p.power[at(v)] = sum.x;
    p.demand[at(v)] = demand(p, v, sum.m, own);
  }
  // The demand of a node itself, from the source `own`; it is counted.
  SR_FN static double demand(const LoadParams& p, int v, double paths, int own) {
    const bool there = paths > 0, asked = there && own != v;
    const double given = p.seed ? p.seed[v] : 1.0;
    if (p.stress) {
      add_to(p.ends + v, asked ? given * paths : 0.0);
      return asked ? given : 0.0;
    }
    const u32 none = ballot(own < p.nodes && !there);
    if (none && int(threadIdx.x) % LANES == 0) atomic_add(p.missed + v, u32(popcount(none)));
    return !asked ? 0.0 : paths == 1 ? given : given / paths;
  }
  SR_FN void hand_down() {
    const int v = taken(), slice = warp & ((1 << p.shift) - 1);
    if (v < 0) return;
    const double wanted = p.demand[at(v)];
    const int row = met(v);
    const int power = WIDE ? paths(v).x : 0;
    if (slice == 0 && row >= 0)
      p.up_demand[up(row)] = wanted * (WIDE ? Paths::scale(up_paths(row).x - power) : 1.0);
    if (!ballot(wanted > 0)) return;
    const T limit = label(v) + T(p.slack);
#pragma unroll 2
    for (int e = p.first[v] + slice; e < p.first[v + 1]; e += 1 << p.shift) {
      const int u = p.head[e];
      const bool tie = wanted > 0 && label(u) + back(e) <= limit;
      if (!ballot(tie)) continue;
      double share = 0;
      if (tie) {
        const Paths on = Paths::of(p.back_count[e], p.back_power, e), to = paths(u);
        const double part = wanted * on.m * Paths::scale(to.x + on.x - power);
        if (to.m > 0) atomic_add(p.demand + at(u), part);
        share = part * to.m;
      }
      add_to(p.back_load + e, share);
    }
  }
};

// A warp takes a subtree and EACH adjacent sources of a lane.
template <class T, bool WIDE, int EACH>
struct Leaves {
  using Paths = PathCount<WIDE>;
  using Base = Gradient<T, WIDE>;
  using Labels = Pack<T, EACH>;
  using Reals = Pack<double, EACH>;
  using Powers = Pack<int, EACH>;
  using Edge = LeafEdge<T>;
  static constexpr int WARPS = 2, LANES = 32;
  static constexpr int BYTES = LANES * (2 * int(sizeof(Reals)) + int(sizeof(Labels)) +
                                        (WIDE ? int(sizeof(Powers)) : 0));  // of a row

  const LoadParams& p;
  const int lane, groups;
  const i64 column;     // this lane's first
  const Edge* const edges;
  Reals* const paths;   // [room][LANES], of which a column is this lane's
  Reals* const demand;  // [room][LANES]
  Labels* const label;  // [room][LANES]
  Powers* const power;  // [room][LANES]

  SR_FN Leaves(const LoadParams& params, int strip, u8* memory)
      : p(params), lane(int(threadIdx.x) % LANES), groups(params.columns / LANES),
        column((i64(strip) * LANES + lane) * EACH), edges(static_cast<const Edge*>(params.edges)),
        paths(reinterpret_cast<Reals*>(memory) + lane), demand(paths + p.room * LANES),
        label(reinterpret_cast<Labels*>(demand - lane + p.room * LANES) + lane),
        power(reinterpret_cast<Powers*>(label - lane + p.room * LANES) + lane) {}

  // The row of an ancestor of this lane's sources, or -1; and where its numbers are.
  SR_FN int met(int v) const { return p.met[i64(v) * groups + column / LANES]; }
  SR_FN i64 up(int row) const {
    return (column / LANES * p.rows + row) * LANES + column % LANES;
  }
  SR_FN Paths at(int row, int k) const {
    return {paths[row * LANES].x[k], WIDE ? power[row * LANES].x[k] : 0};
  }
  SR_FN void fetch(Leaf f, const int* outer, int outers) const {
#pragma unroll 4
    for (int i = 0; i < f.nodes + outers; ++i) {
      const int v = i < f.nodes ? f.top - i : outer[i - f.nodes];
      const T* from = static_cast<const T*>(p.labels) + i64(p.slot[v]) * p.columns + column;
      copy_async<int(sizeof(Labels))>(label + i * LANES, from);
    }
#pragma unroll 4
    for (int i = 0; i < outers; ++i) {
      const i64 from = i64(p.upper[outer[i]]) * p.columns + column;
      copy_async<int(sizeof(Reals))>(paths + (f.nodes + i) * LANES, p.paths + from);
      if constexpr (WIDE)
        copy_async<int(sizeof(Powers))>(power + (f.nodes + i) * LANES, p.power + from);
      demand[(f.nodes + i) * LANES] = Reals{};
    }
    copy_commit();
    copy_wait<0>();
  }
  SR_FN void count(Leaf f, bool visited) const {
    int own[EACH];  // [EACH]
#pragma unroll
    for (int k = 0; k < EACH; ++k) own[k] = p.sources[column + k];
    int end = p.first[f.top + 1];
    for (int i = 0; i < f.nodes; ++i) {
      const int v = f.top - i, begin = p.first[v], row = visited ? met(v) : -1;
      const Labels x = label[i * LANES];
      Paths sum[EACH];  // [EACH]
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        sum[k] = {0, 0};
        if (row >= 0) sum[k] = Paths::of(p.up_paths[up(row) + k], p.up_power, up(row) + k);
      }
#pragma unroll 2
      for (int e = begin; e < end; ++e) {
        const Edge edge = edges[e];
        const Labels head = label[edge.row * LANES];
        const Paths on = Paths::of(edge.count, p.back_power, e);
#pragma unroll
        for (int k = 0; k < EACH; ++k)
          if (head.x[k] + edge.weight <= x.x[k] + T(p.slack)) sum[k] = sum[k] + at(edge.row, k) * on;
      }
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        if (!WIDE && !(sum[k].m < Paths::RADIX)) *p.large = 1;
        paths[i * LANES].x[k] = sum[k].m;
        if constexpr (WIDE) power[i * LANES].x[k] = sum[k].x;
        demand[i * LANES].x[k] = Base::demand(p, v, sum[k].m, own[k]);
      }
      end = begin;
    }
  }
  SR_FN void hand(Leaf f, bool visited) const {
    int begin = p.first[f.top - f.nodes + 1];
    for (int i = f.nodes - 1; i >= 0; --i) {
      const int v = f.top - i, end = p.first[v + 1], row = visited ? met(v) : -1;
      const Labels x = label[i * LANES];
      const Reals wanted = demand[i * LANES];
      bool some = false;
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        some = some || wanted.x[k] > 0;
        if (row >= 0) {
          const int own = Paths::of(0, p.up_power, up(row) + k).x;
          p.up_demand[up(row) + k] = wanted.x[k] * Paths::scale(own - at(i, k).x);
        }
      }
      if (ballot(some)) {
#pragma unroll 2
        for (int e = begin; e < end; ++e) {
          const Edge edge = edges[e];
          const Labels head = label[edge.row * LANES];
          bool tie[EACH], any = false;  // [EACH]
#pragma unroll
          for (int k = 0; k < EACH; ++k) {
            tie[k] = wanted.x[k] > 0 && head.x[k] + edge.weight <= x.x[k] + T(p.slack);
            any = any || tie[k];
          }
          if (!ballot(any)) continue;
          double share = 0;
          Reals& sum = demand[edge.row * LANES];
#pragma unroll
          for (int k = 0; k < EACH; ++k) {
            if (!tie[k]) continue;
            const Paths on = Paths::of(edge.count, p.back_power, e), to = at(edge.row, k);
            const double part = wanted.x[k] * on.m * Paths::scale(to.x + on.x - at(i, k).x);
            sum.x[k] += part;
            share += part * to.m;
          }
          Base::add_to(p.back_load + e, share);
        }
      }
      begin = end;
    }
  }
  SR_FN static void run(const LoadParams& p) {
    const int warp = int(threadIdx.x) / LANES, strips = p.columns / (LANES * EACH);
    const i64 item = i64(blockIdx.x) * WARPS + warp;
    if (item >= i64(p.count) * strips) return;
    const Leaf f = static_cast<const Leaf*>(p.leaves)[p.begin + item / strips];
    const Leaves some(p, int(item % strips), shared_memory<u8>() + warp * p.room * BYTES);
    const int* const outer = p.head + p.first[f.top];
    const int outers = p.first[f.top + 1] - p.first[f.top];
    some.fetch(f, outer, outers);
    const bool visited = some.met(f.top) >= 0;
    some.count(f, visited);
    some.hand(f, visited);
    for (int i = 0; i < outers; ++i) {
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        const double part = some.demand[(f.nodes + i) * LANES].x[k];
        const i64 to = i64(p.upper[outer[i]]) * p.columns + some.column + k;
        if (part > 0) atomic_add(p.demand + to, part);
      }
    }
  }
};

template <class T, bool WIDE>
struct CountUp {
  SR_FN static void run(const LoadParams& p) { Gradient<T, WIDE>(p).count_up(); }
};
template <class T, bool WIDE>
struct CountDown {
  SR_FN static void run(const LoadParams& p) { Gradient<T, WIDE>(p).count_down(); }
};
template <class T, bool WIDE>
struct HandDown {
  SR_FN static void run(const LoadParams& p) { Gradient<T, WIDE>(p).hand_down(); }
};
template <class T, bool WIDE>
struct HandUp {
  SR_FN static void run(const LoadParams& p) { Gradient<T, WIDE>(p).hand_up(); }
};

}  // namespace sr

// Kernels: loads of edges in all shortest paths, by reverse sweeps (semiring_mm/hierarchy/gradient.py)
// over labels that are there.
//
//     CountUp    numbers of shortest paths up from the sources, a block for each group
//     CountDown  numbers of shortest paths to the nodes of some pieces, from those of their heads
//     Leaves     both of whole subtrees that fit into shared memory, one after the other
//     HandDown   demands of the nodes of some pieces, to their heads and edges
//     HandUp     demands of the sources' ancestors, back to the sources and to edges
//
// A demand is kept divided by the number of paths of its node: a head receives it times the number
// of paths of the edge, and nothing else. Edges receive that times the head's number of paths.
//
// A warp takes a group: 32 adjacent columns, which are sources. Nodes are named by positions of the
// elimination, heads are higher ones. Subtrees are ranges of positions. What is above them is in
// connected pieces; those of a launch are as many pieces below a root.
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
  const int* order;           // [upper]: nodes, piece by piece, in each from the top down
  const int* pieces;          // [pieces + 1]: where they begin
  const void* leaves;         // of Leaf
  const void* edges;          // [edges] of LeafEdge<T>, of the subtrees
  i64 slack;                  // by how much lengths may differ that count as equal
  int nodes, columns, rows;
  int stress;                 // whether each path counts 1, not those of two nodes together
  int begin, count;           // the pieces, or leaves, of a launch
  int room, edge_room;        // of Leaves: rows and edges in shared memory
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

// Sums over a warp's lanes, four at a time, each of which is added to a word of memory.
struct Pending {
  double* const sums;
  double x[4] = {};  // [4]
  int at[4] = {};    // [4]
  int count = 0;

  SR_FN explicit Pending(double* to) : sums(to) {}
  SR_FN void add(int place, double value) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (count == i) x[i] = value, at[i] = place;
    if (++count == 4) flush();
  }
  SR_FN static double swapped(bool odd, double a, double b, int mask) {
    return (odd ? b : a) + shuffle_xor(odd ? a : b, mask);
  }
  SR_FN void flush() {
    const int lane = int(threadIdx.x) % 32, own = lane % 4;
    const bool odd = lane & 1, high = lane & 2;
    double sum = swapped(high, swapped(odd, x[0], x[1], 1), swapped(odd, x[2], x[3], 1), 2);
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
    const int place = high ? (odd ? at[3] : at[2]) : odd ? at[1] : at[0];
    if (lane == own && own < count) atomic_add(sums + place, sum);
    count = 0;
  }
};

// T: of labels. A block takes a group, or each of its warps one.
template <class T, bool WIDE>
struct Gradient {
  using Paths = PathCount<WIDE>;
  static constexpr int WARPS = 8, LANES = 32, MANY = 4;  // edges that are under way at once

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
    Pending loads(p.out_load);
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
        loads.add(e, part * here.m);
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
    loads.flush();
  }

  // --- down --------------------------------------------------------------------------------------

  // The piece of a launch that a block takes (TEAM warps together), or a warp; -1: none.
  template <int TEAM>
  SR_FN int taken() {
    const i64 item = TEAM > 1 ? i64(blockIdx.x) : i64(blockIdx.x) * WARPS + warp;
    group = int(item % groups);
    return item < i64(p.count) * groups ? p.begin + int(item / groups) : -1;
  }
  // A warp's share of a node's edges from `e` on: which attain a label, and the heads' numbers.
  struct Ties {
    int head[MANY];    // [MANY]
    bool tie[MANY];    // [MANY]
    Paths paths[MANY];  // [MANY]
  };
  template <int TEAM>
  SR_FN void look(Ties& x, int e, int end, T limit) const {
    T label_of[MANY];  // [MANY]
#pragma unroll
    for (int i = 0; i < MANY; ++i)
      if (e + i * TEAM < end) x.head[i] = p.head[e + i * TEAM];
#pragma unroll
    for (int i = 0; i < MANY; ++i)
      if (e + i * TEAM < end) label_of[i] = label(x.head[i]) + back(e + i * TEAM);
#pragma unroll
    for (int i = 0; i < MANY; ++i) {
      x.tie[i] = e + i * TEAM < end && label_of[i] <= limit;
      x.paths[i] = {0, 0};
      if (x.tie[i]) x.paths[i] = paths(x.head[i]);
    }
  }
  template <int TEAM>
  SR_FN void count_down() {
    const int piece = taken<TEAM>(), slice = TEAM > 1 ? warp : 0;
    if (piece < 0) return;
    const int own = p.sources[column()];
    for (int k = p.pieces[piece]; k < p.pieces[piece + 1]; ++k) {
      const int v = p.order[k], row = met(v), end = p.first[v + 1];
      const T limit = label(v) + T(p.slack);
      Paths sum{0, 0};
      if (slice == 0 && row >= 0) sum = up_paths(row);
#pragma unroll 1
      for (int e = p.first[v] + slice; e < end; e += MANY * TEAM) {
        Ties x;
        look<TEAM>(x, e, end, limit);
#pragma unroll
        for (int i = 0; i < MANY; ++i)
          if (x.tie[i])
            sum = sum + x.paths[i] * Paths::of(p.back_count[e + i * TEAM], p.back_power, e + i * TEAM);
      }
      if constexpr (TEAM > 1) {
        double* const m = shared_memory<double>();                     // [TEAM][LANES]
        int* const power = reinterpret_cast<int*>(m + TEAM * LANES);  // [TEAM][LANES]
        m[threadIdx.x] = sum.m;
        power[threadIdx.x] = sum.x;
        __syncthreads();  // between writing the parts and reading them
        if (warp == 0) {
          for (int i = 1; i < TEAM; ++i)
            sum = sum + Paths{m[i * LANES + lane], power[i * LANES + lane]};
          store(v, sum, own);
        }
        __syncthreads();  // between storing the sum and reading it, for a lower node
      } else {
        store(v, sum, own);
      }
    }
  }
  SR_FN void store(int v, Paths x, int own) const {
    if (!WIDE && !(x.m < Paths::RADIX)) *p.large = 1;
    p.paths[at(v)] = x.m;
    if constexpr (WIDE) p.power[at(v)] = x.x;
    p.demand[at(v)] = demand(p, v, x.m, own);
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
    return asked ? given * inverse_of(paths) : 0.0;
  }
  template <int TEAM>
  SR_FN void hand_down() {
    const int piece = taken<TEAM>(), slice = TEAM > 1 ? warp : 0;
    if (piece < 0) return;
    Pending loads(p.back_load);
    for (int k = p.pieces[piece + 1] - 1; k >= p.pieces[piece]; --k) {
      if constexpr (TEAM > 1) __syncthreads();  // between the demands of lower nodes and this one
      const int v = p.order[k], row = met(v), end = p.first[v + 1];
      const double wanted = p.demand[at(v)];
      const int power = WIDE ? paths(v).x : 0;
      if (slice == 0 && row >= 0)
        p.up_demand[up(row)] = wanted * (WIDE ? Paths::scale(up_paths(row).x - power) : 1.0);
      const T limit = label(v) + T(p.slack);
#pragma unroll 1
      for (int e = p.first[v] + slice; e < end; e += MANY * TEAM) {
        Ties x;
        look<TEAM>(x, e, end, limit);
#pragma unroll
        for (int i = 0; i < MANY; ++i) {
          const Paths to = x.paths[i];
          const bool some = x.tie[i] && wanted > 0 && to.m > 0;
          if (!ballot(some)) continue;
          const int edge = e + i * TEAM;
          const Paths on = Paths::of(p.back_count[edge], p.back_power, edge);
          const double part = some ? wanted * on.m * Paths::scale(to.x + on.x - power) : 0.0;
          if (some) atomic_add(p.demand + at(x.head[i]), part);
          loads.add(edge, part * to.m);
        }
      }
    }
    loads.flush();
  }
};

// A warp takes a subtree and a group.
template <class T, bool WIDE>
struct Leaves {
  using Paths = PathCount<WIDE>;
  using Base = Gradient<T, WIDE>;
  using Edge = LeafEdge<T>;
  using Words = Pack<u32, 4>;
  static constexpr int LANES = 32, MANY = 4;

  const LoadParams& p;
  const Leaf f;
  const int group, groups, lane, low;  // the lowest position
  const int* const outer;              // [outers]: the heads above
  const int outers;
  Edge* const edges;    // [edge_room]
  double* const paths;  // [room][LANES], of which a column is this lane's
  double* const demand;  // [room][LANES]
  T* const label;        // [room][LANES]
  int* const power;      // [room][LANES]
  u32* const tied;       // [room]: a bit for each edge of a node that attains a label, of any lane

  SR_FN Leaves(const LoadParams& params, Leaf leaf, int g)
      : p(params), f(leaf), group(g), groups(params.columns / LANES), lane(int(threadIdx.x)),
        low(leaf.top - leaf.nodes + 1), outer(params.head + params.first[leaf.top]),
        outers(params.first[leaf.top + 1] - params.first[leaf.top]), edges(shared_memory<Edge>()),
        paths(reinterpret_cast<double*>(edges + p.edge_room) + lane),
        demand(paths + p.room * LANES),
        label(reinterpret_cast<T*>(demand - lane + p.room * LANES) + lane),
        power(reinterpret_cast<int*>(label - lane + p.room * LANES) + lane),
        tied(reinterpret_cast<u32*>(power - lane + (WIDE ? p.room * LANES : 0))) {}

  SR_FN i64 column() const { return i64(group) * LANES + lane; }
  SR_FN i64 above(int i) const { return i64(p.upper[outer[i]]) * p.columns + column(); }
  SR_FN i64 up(int row) const { return (i64(group) * p.rows + row) * LANES + lane; }
  SR_FN int met(int v) const { return p.met[i64(v) * groups + group]; }
  SR_FN Paths at(int row) const { return {paths[row * LANES], WIDE ? power[row * LANES] : 0}; }
  // An edge of the subtree; `power` of it is not among what is fetched.
  SR_FN Paths along(const Edge& edge, int e) const {
    return Paths::of(edge.count, p.back_power, e);
  }
  SR_FN void fetch() const {
    const int begin = p.first[low], count = p.first[f.top + 1] - begin;
    const Words* const from = reinterpret_cast<const Words*>(static_cast<const Edge*>(p.edges) + begin);
    Words* const to = reinterpret_cast<Words*>(edges);
    for (int i = lane; i < count * int(sizeof(Edge) / 16); i += LANES) copy_async<16>(to + i, from + i);
#pragma unroll 4
    for (int i = 0; i < f.nodes + outers; ++i) {
      const int v = i < f.nodes ? f.top - i : outer[i - f.nodes];
      const T* const x = static_cast<const T*>(p.labels) + i64(p.slot[v]) * p.columns + column();
      copy_async<int(sizeof(T))>(label + i * LANES, x);
    }
#pragma unroll 4
    for (int i = 0; i < outers; ++i) {
      const i64 x = above(i);
      copy_async<8>(paths + (f.nodes + i) * LANES, p.paths + x);
      if constexpr (WIDE) power[(f.nodes + i) * LANES] = p.power[x];
      demand[(f.nodes + i) * LANES] = 0;
    }
    copy_commit();
    copy_wait<0>();
    __syncwarp();  // between copying the edges and reading them
  }
  SR_FN void count(bool visited) const {
    const int own = p.sources[column()], first = p.first[low];
    int end = p.first[f.top + 1], begin = p.first[f.top];
    for (int i = 0; i < f.nodes; ++i) {
      const int v = f.top - i, next = p.first[v > low ? v - 1 : v];
      const T limit = label[i * LANES] + T(p.slack);
      Paths sum{0, 0};
      u32 bits = 0;
      if (visited && met(v) >= 0) sum = Paths::of(p.up_paths[up(met(v))], p.up_power, up(met(v)));
#pragma unroll 1
      for (int e = begin; e < end; e += MANY) {
        Edge edge[MANY];  // [MANY]
        T x[MANY];        // [MANY]
#pragma unroll
        for (int k = 0; k < MANY; ++k)
          if (e + k < end) edge[k] = edges[e + k - first];
#pragma unroll
        for (int k = 0; k < MANY; ++k)
          if (e + k < end) x[k] = label[edge[k].row * LANES];
#pragma unroll
        for (int k = 0; k < MANY; ++k) {
          if (e + k >= end) continue;
          const bool tie = x[k] + edge[k].weight <= limit;
          if (!ballot(tie)) continue;
          bits |= 1u << (e + k - begin);
          if (tie) sum = sum + at(edge[k].row) * along(edge[k], e + k);
        }
      }
      if (!WIDE && !(sum.m < Paths::RADIX)) *p.large = 1;
      paths[i * LANES] = sum.m;
      if constexpr (WIDE) power[i * LANES] = sum.x;
      demand[i * LANES] = Base::demand(p, v, sum.m, own);
      if (lane == 0) tied[i] = bits;
      end = begin;
      begin = next;
    }
    __syncwarp();  // between writing the bits and reading them
  }
  SR_FN void hand(bool visited) const {
    const int first = p.first[low];
    Pending loads(p.back_load);
    int begin = first;
    for (int i = f.nodes - 1; i >= 0; --i) {
      const int v = f.top - i, next = p.first[v + 1];
      const T limit = label[i * LANES] + T(p.slack);
      const double wanted = demand[i * LANES];
      const int top = at(i).x;
      if (visited && met(v) >= 0) {
        const int own = Paths::of(0, p.up_power, up(met(v))).x;
        p.up_demand[up(met(v))] = wanted * Paths::scale(own - top);
      }
      for (u32 bits = tied[i]; bits;) {
        const int bit = bit_length(bits) - 1;
        bits ^= 1u << bit;
        const Edge edge = edges[begin + bit - first];
        const Paths to = at(edge.row), on = along(edge, begin + bit);
        double& sum = demand[edge.row * LANES];
        const bool tie = label[edge.row * LANES] + edge.weight <= limit;
        const double part = tie ? wanted * on.m * Paths::scale(to.x + on.x - top) : 0.0;
        sum += part;
        loads.add(begin + bit, part * to.m);
      }
      begin = next;
    }
    loads.flush();
    for (int i = 0; i < outers; ++i) {
      const double part = demand[(f.nodes + i) * LANES];
      if (part > 0) atomic_add(p.demand + above(i), part);
    }
  }
  SR_FN static void run(const LoadParams& p) {
    const int groups = p.columns / LANES, leaf = p.begin + int(blockIdx.x / u32(groups));
    const Leaves some(p, static_cast<const Leaf*>(p.leaves)[leaf], int(blockIdx.x % u32(groups)));
    some.fetch();
    const bool visited = some.met(some.f.top) >= 0;
    some.count(visited);
    some.hand(visited);
  }
};

template <class T, bool WIDE>
struct CountUp {
  SR_FN static void run(const LoadParams& p) { Gradient<T, WIDE>(p).count_up(); }
};
template <class T, bool WIDE, int TEAM>
struct CountDown {
  SR_FN static void run(const LoadParams& p) { Gradient<T, WIDE>(p).template count_down<TEAM>(); }
};
template <class T, bool WIDE, int TEAM>
struct HandDown {
  SR_FN static void run(const LoadParams& p) { Gradient<T, WIDE>(p).template hand_down<TEAM>(); }
};
template <class T, bool WIDE>
struct HandUp {
  SR_FN static void run(const LoadParams& p) { Gradient<T, WIDE>(p).hand_up(); }
};

}  // namespace sr

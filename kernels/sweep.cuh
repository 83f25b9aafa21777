// Kernels: best paths from many sources over a customized elimination (semiring_mm/hierarchy/). A
// label is the best way from a source to a node; it settles in a pass up, a product with the closed
// core, and a pass down.
//
//     Rise      labels of the sources' ancestors and of the core, a block for each group of sources
//     Fall      labels of all nodes below the core, a block for some regions and a group, but for
//     Own       those of the leaf regions that hold sources
//     Stored    statistics of labels in memory
//     Finish    those of a launch's blocks, joined in their order
//     Rows      labels to rows of distances
//     Parents   predecessors, from the labels and the graph's edges
//
// A region is a connected piece of the elimination tree. Its nodes come from the top down, so
// that the heads of a node's edges are before it in the region or above the region's first node
// (then they are heads of that node, too). A leaf region has no others below it. A block has the
// labels of a region and of the heads above it in shared memory, in rows; a thread reads
// and writes its own sources only, so that no barrier is needed on the way.
//
// On the way down all heads of a node are its ancestors, and subtrees follow each other, so that the
// nodes of a region take a row for each of its levels only: the fewer rows, the more blocks at once.
//
// Nodes are named by places: those of the regions one after the other, then those of the core.
#pragma once
#include "base.cuh"

namespace sr {

// The same fields in the same order in semiring_mm/gpu/sweeps.py.
struct SweepParams {
  const void* down;         // [records] of Edge: from the head to the tail, with rows by levels
  const void* up;           // [records] of Edge: from the tail to the head, with rows by nodes
  const void* regions;      // [regions] of Region
  const void* nodes;        // [fringe] of SweepNode
  const int* outer;         // slots of the heads above each region
  const int* order;         // [count]: the regions of this launch of Fall
  const int* visit_first;   // [groups + 1]
  const int* visits;        // the regions on the way from a group's sources, children first
  const int* sources;       // [columns]: places
  u8* visited;              // [regions][columns / marked]
  void* labels;             // [slots][columns] of Compute, the core's first
  const int* names;         // [slots]: the node of each
  i64* parts;               // [parts][fields][columns]: statistics of each block
  i64* results;             // [fields][room], from this launch's first column on
  const int* where;         // [targets]: slots of the columns of `rows`
  const int* lines;         // [columns]: rows of `rows`; -1: none
  void* rows;               // [...][targets] of Storage, or of nodes
  const int* origin;        // [columns]: nodes of the sources
  const int* near_first;    // [targets + 1]: where the edges to each begin
  const void* near;         // of Near
  const void* radii;        // of Compute
  const i64* mass;          // [nodes]: what counts within a radius, integers or doubles
  const void* limits;       // [bins + 1] of Compute: where bins begin, and the last one ends
  u64* bins;                // [bin_count]: labels in each
  i64 zero, one;            // the low bytes are a Compute
  i64 scale;                // of bins as wide as each other: see Bins; 0: they are not
  i64 room, pitch;          // columns of `results`; entries from one row of `rows` to the next
  int columns, groups, fringe, core, count;
  int marked;               // columns of a group of Rise
  int each;                 // regions (Fall) or slots (Stored) of a block
  int begin, part;          // the first slot of Stored; the first of its parts
  int targets, shift;
  int bin_count, node_room, edge_room, row_room;  // of a block's shared memory
};

struct Region {
  int node, nodes;    // its places
  int outer, outers;  // the heads above it, whose labels have rows
  int edge, edges;    // both even; edges counts the edges that are kept in shared memory
  int leaf;
  int held;           // whether all heads have rows in shared memory; else their edges have places
  int levels;         // rows of its nodes on the way down: the heads above it come after them
  int unused[3];
};
// The edges of a node begin at the first even number from the last node's `end` on.
struct SweepNode {
  int end;
  int slot;   // where its label is stored; -1: nowhere
  int name;   // the node
  int level;  // its row on the way down: how many nodes of its region are above it
};

// What statistics there are, as bits: as in semiring_mm/gpu/sweeps.py. And that 64 labels add up
// to less than 2^31; that nodes have a mass, of integers or of doubles; a number of radii.
enum { LARGEST = 1, COUNT = 2, SUM = 4, INVERSE = 8, WITHIN = 16, BINS = 32 };
enum { SHORT = 64, MASS = 128, REAL_MASS = 256, RADIUS = 512 };

SR_FN double to_double(float x) { return x; }
SR_FN double to_double(double x) { return x; }
SR_FN double to_double(i64 x) { return double(x); }
SR_FN double to_double(i32 x) {  // by an addition: converting takes four times as long
  return bits_as<double>(i64(0x4330000000000000) | (u32(x) ^ 0x80000000u)) - 0x1.000008p52;
}

// Statistics of the labels from one source to the nodes that it reaches, itself among them.
template <class A, int KINDS>
struct Statistics {
  using Compute = typename A::Compute;
  static constexpr int RADII = KINDS / RADIUS;
  static constexpr bool FLOATING = Is<Compute>::floating;
  static constexpr int FIELDS = (KINDS & LARGEST ? 1 : 0) + (KINDS & COUNT ? 1 : 0) +
                                (KINDS & SUM ? 1 : 0) + (KINDS & INVERSE ? 1 : 0) + RADII;
  using Sum = typename Choose<FLOATING, double, i64>::Type;
  using Mass = typename Choose<(KINDS & REAL_MASS) != 0, double, i64>::Type;
  static constexpr int NEAR = RADII ? RADII : 1;

  Compute largest;
  int count, part;  // SHORT: what is not in `sum` yet
  Sum sum;
  double inverse;
  Mass within[NEAR];  // [RADII]

  SR_FN void clear() {
    largest = Compute(0);
    count = part = 0;
    sum = Sum(0);
    inverse = 0;
#pragma unroll
    for (int r = 0; r < RADII; ++r) within[r] = Mass(0);
  }
  SR_FN void take(Compute x, Compute zero, Mass mass, const Compute (&radii)[NEAR]) {
    const bool there = x != zero;
    const Compute y = there ? x : Compute(0);
    if constexpr (KINDS & LARGEST) largest = y > largest ? y : largest;
    if constexpr (KINDS & COUNT) count += int(there);
    if constexpr ((KINDS & SUM) && (KINDS & SHORT)) part += int(y);
    else if constexpr (KINDS & SUM) sum += Sum(y);
    if constexpr (KINDS & INVERSE) {
      const double z = inverse_of(to_double(y));
      inverse += y != Compute(0) ? z : 0.0;
    }
#pragma unroll
    for (int r = 0; r < RADII; ++r) within[r] += there & (x <= radii[r]) ? mass : Mass(0);
  }
  // After at most 64 labels.
  SR_FN void carry() {
    if constexpr ((KINDS & SUM) && (KINDS & SHORT)) {
      sum += Sum(part);
      part = 0;
    }
  }

  // One word of a field for each source; from one field to the next there are `step`.
  SR_FN static i64 word(i64 x) { return x; }
  SR_FN static i64 word(double x) { return bits_as<i64>(x); }
  template <class To>
  SR_FN static To value(i64 x) {
    if constexpr (Is<To>::floating) return To(bits_as<double>(x));
    else return To(x);
  }
  SR_FN void store(i64* to, i64 step) const {
    if constexpr (KINDS & LARGEST) *to = word(Sum(largest)), to += step;
    if constexpr (KINDS & COUNT) *to = count, to += step;
    if constexpr (KINDS & SUM) *to = word(sum), to += step;
    if constexpr (KINDS & INVERSE) *to = word(inverse), to += step;
#pragma unroll
    for (int r = 0; r < RADII; ++r) *to = word(within[r]), to += step;
  }
  SR_FN void join(const i64* from, i64 step) {
    if constexpr (KINDS & LARGEST) {
      const Compute x = value<Compute>(*from);
      largest = x > largest ? x : largest, from += step;
    }
    if constexpr (KINDS & COUNT) count += int(*from), from += step;
    if constexpr (KINDS & SUM) sum += value<Sum>(*from), from += step;
    if constexpr (KINDS & INVERSE) inverse += value<double>(*from), from += step;
#pragma unroll
    for (int r = 0; r < RADII; ++r) within[r] += value<Mass>(*from), from += step;
  }
};

// A block's histogram, first in its shared memory. What is in no bin counts in one more.
template <class T>
struct Bins {
  static constexpr bool WORDS = !Is<T>::floating && sizeof(T) == 4;
  const int count, shift;
  const i64 scale;
  T* const limits;    // [count + 1], if there are any
  u32* const counts;  // [count + 1]

  SR_FN static int aligned(int bytes) { return (bytes + 15) & ~15; }
  SR_FN explicit Bins(const SweepParams& p)
      : count(p.bin_count), shift(p.shift), scale(p.scale), limits(shared_memory<T>()),
        counts(reinterpret_cast<u32*>(shared_memory<unsigned char>() +
                                      (count ? aligned((count + 1) * int(sizeof(T))) : 0))) {}
  SR_FN SweepNode* end() const {
    return reinterpret_cast<SweepNode*>(reinterpret_cast<unsigned char*>(counts) +
                                        (count ? aligned(4 * (count + 1)) : 0));
  }
  SR_FN void clear(const SweepParams& p) const {
    for (int i = int(threadIdx.x); i <= count; i += int(blockDim.x)) {
      limits[i] = static_cast<const T*>(p.limits)[i];
      counts[i] = 0;
    }
    __syncthreads();  // between writing limits and counts and using them
  }
  SR_FN void take(T x) const {
    int low = 0;
    if (WORDS && scale) {  // the integer quotient by a bin's width, exactly: Python has seen to it
      const u64 found = u64(u32(x) - u32(limits[0])) * u64(scale) >> shift;
      low = found < u64(count) ? int(found) : count;
    } else if (!(x >= limits[0] && x < limits[count])) {
      low = count;
    } else if (scale) {  // a guess; rounding makes it wrong by one at most
      low = int(float(x - limits[0]) * float(bits_as<double>(scale)));
      low = low < count ? low : count - 1;
      low -= x < limits[low];
      low += !(x < limits[low + 1]);
    } else {
      for (int high = count; high - low > 1;) {  // limits[low] <= x < limits[high]
        const int middle = (low + high) / 2;
        if (x < limits[middle]) high = middle;
        else low = middle;
      }
    }
    atomic_add(counts + low, 1u);
  }
  SR_FN void store(const SweepParams& p) const {
    __syncthreads();  // between counting and reading the counts
    for (int i = int(threadIdx.x); i < count; i += int(blockDim.x))
      if (counts[i]) atomic_add(p.bins + i, u64(counts[i]));
  }
};

// A block of THREADS, with EACH adjacent sources of a thread.
template <class A, int THREADS, int EACH>
struct Sweep {
  using Compute = typename A::Compute;
  using Piece = Pack<Compute, EACH>;  // a label of each source
  static constexpr int WIDTH = THREADS * EACH;
  struct Edge {
    Compute weight;
    int row;  // times THREADS; or a place, where heads have no rows
  };
  static constexpr int AHEAD = 4;  // edges that are under way at once
  static_assert(2 * sizeof(Edge) % 16 == 0, "two edges are read at once");

  const SweepParams& p;
  const int group;
  const Compute zero, one;
  SweepNode* const nodes;  // [node_room], of which one is not the region's
  Edge* const edges;       // [edge_room], of which AHEAD are not the region's
  Piece* const rows;       // [nodes or levels + outers][THREADS], of which a column is this thread's

  SR_FN Sweep(const SweepParams& params, int g)
      : p(params), group(g), zero(scalar(p.zero)), one(scalar(p.one)),
        nodes(Bins<Compute>(params).end()), edges(reinterpret_cast<Edge*>(nodes + p.node_room)),
        rows(reinterpret_cast<Piece*>(edges + p.edge_room) + threadIdx.x) {}

  SR_FN static Compute scalar(const i64& bits) { return *reinterpret_cast<const Compute*>(&bits); }
  SR_FN static Piece all(Compute x) {
    Piece piece;
#pragma unroll
    for (int i = 0; i < EACH; ++i) piece.x[i] = x;
    return piece;
  }
  SR_FN i64 column() const { return i64(group) * WIDTH + int(threadIdx.x) * EACH; }
  SR_FN Piece& label(int slot) const {
    return *reinterpret_cast<Piece*>(static_cast<Compute*>(p.labels) + column() + i64(slot) * p.columns);
  }
  SR_FN int slot(int place) const {
    return place < p.fringe ? static_cast<const SweepNode*>(p.nodes)[place].slot : place - p.fringe;
  }
  SR_FN Region region(int f) const { return static_cast<const Region*>(p.regions)[f]; }
  SR_FN u8& mark(int f) const {
    return p.visited[i64(f) * (p.columns / p.marked) + int(column()) / p.marked];
  }

  // acc ⊕ (x ⊗ weight)
  SR_FN static Piece fold(Piece acc, const Piece& x, Compute weight) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) acc.x[i] = A::fold(acc.x[i], x.x[i], weight);
    return acc;
  }

  // Begin to copy labels to the row of a node.
  SR_FN void fetch(int row, int slot) const {
    copy_async<int(sizeof(Piece))>(&rows[row * THREADS], &label(slot));
  }
  // A region's nodes and edges to shared memory, by all threads, and the labels of the heads above
  // it to the rows from `inner` on. OWN: and what its nodes have in memory, to the first ones.
  SR_FN void stage(const Region& f, const void* weighted, int inner, bool own) const {
    using Words = Pack<u32, 4>;
    __syncthreads();  // between reading the last region's nodes and edges and writing these
    const Words* from = static_cast<const Words*>(p.nodes) + f.node;
    Words* to = reinterpret_cast<Words*>(nodes);
    for (int i = int(threadIdx.x); i < f.nodes; i += THREADS) copy_async<16>(to + i, from + i);
    constexpr int WORDS = int(sizeof(Edge)) / 4;
    from = reinterpret_cast<const Words*>(static_cast<const Edge*>(weighted) + f.edge);
    to = reinterpret_cast<Words*>(edges);
#pragma unroll 1
    for (int i = int(threadIdx.x); i < f.edges * WORDS / 4; i += THREADS)
      copy_async<16>(to + i, from + i);
#pragma unroll 4
    for (int i = 0; i < f.outers; ++i) fetch(inner + i, p.outer[f.outer + i]);
    if (own) {
#pragma unroll 4
      for (int i = 0; i < f.nodes; ++i) fetch(i, slot(f.node + i));
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();  // between writing the nodes and edges and reading them
  }
  // Labels of a leaf's nodes that hold sources only, a row of `own` for each.
  SR_FN void begin_leaf(const Region& f, Piece* own) const {
#pragma unroll 4
    for (int i = 0; i < f.nodes; ++i) own[i * THREADS] = all(zero);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int at = p.sources[column() + i] - f.node;
      if (at >= 0 && at < f.nodes) own[at * THREADS].x[i] = one;
    }
  }
  SR_FN static int after(int end) { return (end + 1) & ~1; }
  SR_FN static void read(Edge (&edge)[AHEAD], const Edge* from) {
    struct alignas(16) Two { Edge x[2]; };
#pragma unroll
    for (int i = 0; i < AHEAD; i += 2) {
      const Two two = *reinterpret_cast<const Two*>(from + i);
      edge[i] = two.x[0];
      edge[i + 1] = two.x[1];
    }
  }
  // The heads of a node's edges from `begin` to `end`, in those of `rows` below `limit`, ⊕= the
  // node's label ⊗ the weight. They are different, so that some are under way at once.
  SR_FN static void push(
      Piece* rows, Piece x, const Edge* from, int begin, int end, int limit) {
    constexpr int MANY = 2 * AHEAD;
#pragma unroll 1
    for (int e = begin; e < end; e += MANY) {
      Edge edge[MANY];   // [MANY]
      Piece head[MANY];  // [MANY]
#pragma unroll
      for (int i = 0; i < MANY; ++i)
        if (e + i < end) edge[i] = from[e + i];
#pragma unroll
      for (int i = 0; i < MANY; ++i)
        if (e + i < end && edge[i].row < limit) head[i] = rows[edge[i].row];
#pragma unroll
      for (int i = 0; i < MANY; ++i)
        if (e + i < end && edge[i].row < limit)
          rows[edge[i].row] = fold(head[i], x, edge[i].weight);
    }
  }

  // --- up ----------------------------------------------------------------------------------------

  SR_FN void rise() const {
    const int first = p.visit_first[group], last = p.visit_first[group + 1];
    for (int i = 0; i < p.core; ++i) label(i) = all(zero);
    for (int k = first; k < last; ++k) {
      const int at = p.visits[k];
      const Region f = region(at);
      if (threadIdx.x == 0) mark(at) = 1;
      if (f.leaf) continue;
      for (int i = 0; i < f.nodes; ++i) label(slot(f.node + i)) = all(zero);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {  // sources in a leaf are set there
      const int at = p.sources[column() + i];
      if (at >= 0 && slot(at) >= 0) label(slot(at)).x[i] = one;
    }
    for (int k = first; k < last; ++k) rise(region(p.visits[k]));
  }
  SR_FN void rise(const Region& f) const {
    stage(f, p.up, f.nodes, !f.leaf);
    if (f.leaf) begin_leaf(f, rows);
    const Edge* far = static_cast<const Edge*>(p.up) + f.edge;
    for (int i = f.nodes - 1; i >= 0; --i) {
      const SweepNode node = nodes[i];
      const Piece x = f.held ? rows[i * THREADS] : label(node.slot);
      const int begin = i ? after(nodes[i - 1].end) : 0;
      if (f.held) push(rows, x, edges, begin, node.end, (f.nodes + f.outers) * THREADS);
#pragma unroll 1
      for (int e = f.held ? node.end : begin; e < node.end; ++e) {
        Piece& head = label(slot(far[e].row));
        head = fold(head, x, far[e].weight);
      }
    }
    if (!f.leaf && f.held)
      for (int i = 0; i < f.nodes; ++i) label(nodes[i].slot) = rows[i * THREADS];
    for (int i = 0; i < f.outers; ++i)
      label(p.outer[f.outer + i]) = rows[(f.nodes + i) * THREADS];
  }

  // --- down --------------------------------------------------------------------------------------

  // The labels that a leaf's own sources give to its nodes.
  SR_FN void rise_again(const Region& f, Piece* own) const {
    begin_leaf(f, own);
    const Edge* from = static_cast<const Edge*>(p.up) + f.edge;
#pragma unroll 1
    for (int i = f.nodes - 1; i > 0; --i) {
      const Piece x = own[i * THREADS];
      push(own, x, from, after(nodes[i - 1].end), nodes[i].end, f.nodes * THREADS);
    }
  }
  // x ⊕ the first `count` edges' heads ⊗ their weights.
  SR_FN Piece join(Piece x, const Edge (&edge)[AHEAD], int count) const {
    Piece head[AHEAD];  // [AHEAD]
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
      if (i < count) head[i] = rows[edge[i].row];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
      if (i < count) x = fold(x, head[i], edge[i].weight);
    return x;
  }
  // STORE: labels with a slot are stored.
  template <bool STORE, class Counts>
  SR_FN void fall(int at, Counts& tally) const {
    const Region f = region(at);
    const bool own = mark(at) != 0;
    stage(f, p.down, f.levels, false);
    if (!own && f.held) walk<STORE, false>(f, nullptr, false, tally);
    else if (!f.leaf) walk<STORE, true>(f, nullptr, own, tally);
  }
  // Of a leaf that holds sources.
  template <bool STORE, class Counts>
  SR_FN void fall_own(const Region& f, Counts& tally) const {
    Piece* own = rows + p.row_room * THREADS;
    stage(f, p.down, f.levels, false);
    rise_again(f, own);
    walk<STORE, true>(f, own, true, tally);
  }
  // RARE: nodes may have labels already, in `begun` or in memory; heads may have no rows.
  template <bool STORE, bool RARE, class Counts>
  SR_FN void walk(const Region& f, const Piece* begun, bool own, Counts& tally) const {
    [[maybe_unused]] const Edge* far = static_cast<const Edge*>(p.down) + f.edge;
    SweepNode node = nodes[0];
    Edge edge[AHEAD];  // [AHEAD]
    read(edge, edges);
    Piece before = all(zero);
    if (RARE && own) before = begun ? begun[0] : label(node.slot);
    for (int i = 0, e = 0; i < f.nodes; ++i) {
      const SweepNode next = nodes[i + 1];
      Piece x = before;
      if (RARE && own && i + 1 < f.nodes)  // long before it is needed
        before = begun ? begun[(i + 1) * THREADS] : label(next.slot);
      if (!RARE || f.held) {
#pragma unroll 1
        for (; e + AHEAD < node.end; e += AHEAD) {
          x = join(x, edge, AHEAD);
          read(edge, edges + e + AHEAD);
        }
        x = join(x, edge, node.end - e);
      } else {
#pragma unroll 1
        for (; e < node.end; ++e) x = fold(x, label(slot(far[e].row)), far[e].weight);
      }
      e = after(node.end);
      if (!RARE || f.held) read(edge, edges + e);
      if (RARE && own) {
#pragma unroll
        for (int v = 0; v < EACH; ++v)  // rounding in a cycle of weight 0 must not show
          if (p.sources[column() + v] == f.node + i) x.x[v] = one;
      }
      rows[node.level * THREADS] = x;
      if (STORE && node.slot >= 0) label(node.slot) = rows[node.level * THREADS];  // of `x` the compiler makes words
      tally.take(x, node.name);
      node = next;
    }
    tally.carry();
  }
};

template <class A, int THREADS, int EACH>
struct Rise {
  SR_FN static void run(const SweepParams& p) {
    const Sweep<A, THREADS, EACH> sweep(p, int(blockIdx.x));
    sweep.rise();
  }
};

// Statistics of a thread's sources.
template <class A, int THREADS, int EACH, int KINDS>
struct Tally {
  using Compute = typename A::Compute;
  using Block = Sweep<A, THREADS, EACH>;
  using Found = Statistics<A, KINDS>;
  using Mass = typename Found::Mass;
  Found found[EACH];            // [EACH]
  Compute radii[Found::NEAR];   // [RADII]
  const Compute zero, beyond;  // the end of all bins, which is in none
  const i64* const mass;
  const Bins<Compute> bins;

  SR_FN explicit Tally(const SweepParams& p)
      : zero(Block::scalar(p.zero)),
        beyond(KINDS & BINS ? static_cast<const Compute*>(p.limits)[p.bin_count] : zero),
        mass(p.mass), bins(p) {
#pragma unroll
    for (int r = 0; r < Found::RADII; ++r) radii[r] = static_cast<const Compute*>(p.radii)[r];
#pragma unroll
    for (int v = 0; v < EACH; ++v) found[v].clear();
    if constexpr (KINDS & BINS) bins.clear(p);
  }
  SR_FN void take(const typename Block::Piece& x, int name) {
    Mass each = Mass(1);
    if constexpr (KINDS & (MASS | REAL_MASS)) each = Found::template value<Mass>(mass[name]);
#pragma unroll
    for (int v = 0; v < EACH; ++v) {
      found[v].take(x.x[v], zero, each, radii);
      if constexpr (KINDS & BINS) bins.take(x.x[v] == zero ? beyond : x.x[v]);
    }
  }
  SR_FN void carry() {
#pragma unroll
    for (int v = 0; v < EACH; ++v) found[v].carry();
  }
  SR_FN void store(const SweepParams& p, i64 part, i64 column) const {
#pragma unroll
    for (int v = 0; v < EACH; ++v)
      found[v].store(p.parts + part * Found::FIELDS * p.columns + column + v, p.columns);
    if constexpr (KINDS & BINS) bins.store(p);
  }
};

// No statistics: labels are stored instead.
template <class A, int THREADS, int EACH>
struct Tally<A, THREADS, EACH, 0> {
  SR_FN explicit Tally(const SweepParams&) {}
  SR_FN void take(const typename Sweep<A, THREADS, EACH>::Piece&, int) {}
  SR_FN void carry() {}
  SR_FN void store(const SweepParams&, i64, i64) const {}
};

template <class A, int THREADS, int EACH, int KINDS>
struct Fall {
  SR_FN static void run(const SweepParams& p) {
    const int group = int(blockIdx.x % u32(p.groups)), share = int(blockIdx.x / u32(p.groups));
    const Sweep<A, THREADS, EACH> sweep(p, group);
    const int first = share * p.each, last = first + p.each < p.count ? first + p.each : p.count;
    Tally<A, THREADS, EACH, KINDS> tally(p);
    for (int k = first; k < last; ++k) sweep.template fall<KINDS == 0>(p.order[k], tally);
    tally.store(p, p.part + share, sweep.column());
  }
};

// The leaf regions on the way from a group's sources, every `each`-th of them in a block.
template <class A, int THREADS, int EACH, int KINDS>
struct Own {
  SR_FN static void run(const SweepParams& p) {
    const int group = int(blockIdx.x % u32(p.groups)), share = int(blockIdx.x / u32(p.groups));
    const Sweep<A, THREADS, EACH> sweep(p, group);
    const int first = p.visit_first[group] + share, last = p.visit_first[group + 1];
    Tally<A, THREADS, EACH, KINDS> tally(p);
    for (int k = first; k < last; k += p.each) {
      const Region f = sweep.region(p.visits[k]);
      if (f.leaf) sweep.template fall_own<KINDS == 0>(f, tally);
    }
    tally.store(p, p.part + share, sweep.column());
  }
};

template <class A, int THREADS, int EACH, int KINDS>
struct Stored {
  SR_FN static void run(const SweepParams& p) {
    const int group = int(blockIdx.x % u32(p.groups)), share = int(blockIdx.x / u32(p.groups));
    const Sweep<A, THREADS, EACH> sweep(p, group);
    const int first = p.begin + share * p.each;
    const int last = first + p.each < p.count ? first + p.each : p.count;
    Tally<A, THREADS, EACH, KINDS> tally(p);
    for (int begin = first; begin < last; begin += 64) {
      const int end = begin + 64 < last ? begin + 64 : last;
#pragma unroll 4
      for (int i = begin; i < end; ++i) tally.take(sweep.label(i), p.names[i]);
      tally.carry();
    }
    tally.store(p, p.part + share, sweep.column());
  }
};

// A thread for each source.
template <class A, int KINDS>
struct Finish {
  SR_FN static void run(const SweepParams& p) {
    using Found = Statistics<A, KINDS>;
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= p.columns) return;
    Found found;
    found.clear();
#pragma unroll 4
    for (int part = 0; part < p.count; ++part)
      found.join(p.parts + i64(part) * Found::FIELDS * p.columns + column, p.columns);
    found.store(p.results + column, p.room);
  }
};

// A block turns 32 targets of 32 sources: WRITE gives an entry of `rows` from a label, or from what
// TAKE finds for a target and a column.
template <class A, class Entry>
struct Turned {
  static constexpr int SIDE = 32, WARPS = 8;
  static constexpr int BYTES = SIDE * (SIDE + 1) * int(sizeof(Entry));

  template <class Take>
  SR_FN static void run(const SweepParams& p, Take take) {
    Entry* tile = shared_memory<Entry>();  // [SIDE][SIDE + 1]
    const int lane = int(threadIdx.x) % SIDE, warp = int(threadIdx.x) / SIDE;
    const u32 strips = u32(p.columns) / SIDE;
    const i64 column = i64(blockIdx.x % strips) * SIDE, target = i64(blockIdx.x / strips) * SIDE;
#pragma unroll
    for (int i = warp; i < SIDE; i += WARPS)
      if (target + i < p.targets) tile[i * (SIDE + 1) + lane] = take(target + i, column + lane);
    __syncthreads();  // between storing the tile and reading it
#pragma unroll
    for (int i = warp; i < SIDE; i += WARPS) {
      const i64 line = p.lines[column + i];
      if (line >= 0 && target + lane < p.targets)
        static_cast<Entry*>(p.rows)[line * p.pitch + target + lane] = tile[lane * (SIDE + 1) + i];
    }
  }
};

// Labels as Storage, or as another floating type ENTRY, in which those of `zero` are infinite.
template <class A, class Entry>
struct Rows {
  using Compute = typename A::Compute;
  struct Value {
    const SweepParams& p;
    SR_FN Entry operator()(i64 target, i64 column) const {
      const Compute x =
          static_cast<const Compute*>(p.labels)[i64(p.where[target]) * p.columns + column];
      if constexpr (Is<Entry>::floating && !Is<Compute>::floating)
        return x == *reinterpret_cast<const Compute*>(&p.zero) ? infinity<Entry>() : Entry(x);
      else return A::encode(x);
    }
  };
  SR_FN static void run(const SweepParams& p) { Turned<A, Entry>::run(p, Value{p}); }
};

// The node before each target on a best path, which is a node of an edge to it.
template <class A>
struct Parents {
  using Compute = typename A::Compute;
  static constexpr int NONE = -9999;
  struct Near {
    Compute weight;
    int slot, node;
  };
  struct Value {
    const SweepParams& p;
    SR_FN int operator()(i64 target, i64 column) const {
      const Compute* labels = static_cast<const Compute*>(p.labels) + column;
      const Compute zero = *reinterpret_cast<const Compute*>(&p.zero);
      const int slot = p.where[target];
      if (labels[i64(slot) * p.columns] == zero || p.origin[column] == target) return NONE;
      Compute best = zero;
      int node = NONE;
      for (int e = p.near_first[target]; e < p.near_first[target + 1]; ++e) {
        const Near near = static_cast<const Near*>(p.near)[e];
        const Compute x = A::fold(zero, labels[i64(near.slot) * p.columns], near.weight);
        if (A::better(x, best)) best = x, node = near.node;
      }
      return node;
    }
  };
  SR_FN static void run(const SweepParams& p) { Turned<A, int>::run(p, Value{p}); }
};

}  // namespace sr

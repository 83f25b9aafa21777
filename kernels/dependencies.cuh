// Kernels: dependencies on nodes and edges, summed over many sources, where every edge counts 1
// (Brandes, A faster algorithm for betweenness centrality, 2001).
//
//     PathStart     the sources
//     PathCount     numbers of shortest paths to the nodes of a level
//     PathMeet      the nodes of the next level
//     PathShare     backward: what the nodes of a level, and the edges from it, carry
//
// A batch has 64 `words` sources, two a lane. An event is a node and a word of sources some of which
// meet it in a level, with a mask of these. A level is a list of events, so that a launch takes as
// long as what happens in the level, however many nodes there are. Masks of three levels lie by node
// and word at a time: of level k in matrix k % 3. Those of the levels before and behind an event's
// say which values are gathered.
//
// Forward, value[v] is σ(v), the number of shortest paths to node v. Backward it becomes γ(v) =
// demand(v) / σ(v) + Σ γ(u) over the nodes u after v. An edge from v to u carries σ(v) γ(u). No two
// threads add to the same sum, and no sum depends on the order of the events.
#pragma once
#include "base.cuh"

namespace sr {

// The same fields in the same order in semiring_mm/gpu/dependencies.py.
struct PathParams {
  const i64* first;      // [n + 1]: edges from each node
  const int* near;       // [arcs]: their heads
  const i64* back;       // [n + 1]: edges to each node
  const int* before;     // [arcs]: their tails
  const u8* many;        // [n]: whether a block takes an event of the node, and not a warp
  const int* sources;    // [columns]
  const double* demand;  // [n], or null: 1 each
  u64* seen;             // [n][words]: sources that met the node in this level or before
  u64* masks;            // [3][n][words]
  double* value;         // [n][words][64]: bits i and i + 32 of a word are a pair
  u32* places;           // [events]: node * words + word; those of many edges from `apart` on
  u64* events;           // [events]: masks
  u32* bounds;           // [2][levels]: where the events of each level begin
  double* node_load;     // [words][n]
  double* arc_load;      // [words][arcs], or null
  u32* trouble;          // [1]: whether there are more paths than `most`
  double most;
  i64 arcs, apart;
  int n, words, columns, levels, level, stress;
};

// The source of each column; places and masks, but not `seen`, which PathCount writes.
struct PathStart {
  SR_FN static void run(const PathParams& p) {
    const int column = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (column >= p.columns) return;
    const int v = p.sources[column];
    const u32 at = u32(v) * u32(p.words) + u32(column / 64);
    p.value[i64(at) * 64 + column % 32 * 2 + column % 64 / 32] = 1;
    if (atomic_or(p.masks + at, u64(1) << column % 64)) return;  // a source of the same word
    const bool many = p.many[v];
    p.places[(many ? p.apart : 0) + fetch_add(p.bounds + (many ? p.levels : 0) + 1, 1)] = at;
  }
};

// A warp, or a block together, at an event.
struct PathEvents {
  using Pair = Pack<double, 2>;
  static constexpr int AHEAD = 4;  // rows of values that are under way at once

  const PathParams& p;
  const int lane, warp, warps;
  const i64 row;               // words of all masks of a level
  Pair* const parts;           // [warps][32]
  u64 mask = 0;                // of the event
  i64 place = 0;
  int node = 0, word = 0;

  SR_FN explicit PathEvents(const PathParams& params)
      : p(params), lane(int(threadIdx.x) % 32), warp(int(threadIdx.x) / 32),
        warps(int(blockDim.x) / 32), row(i64(p.n) * p.words), parts(shared_memory<Pair>()) {}

  SR_FN u64* masks(int level) const { return p.masks + level % 3 * row; }

  // Do a step at each event of the level, by a warp or, SHARED, a block.
  template <class Step>
  SR_FN static void run(const PathParams& p) {
    Step step(p);
    const u32 *few = p.bounds + p.level, *many = few + p.levels;
    for (u32 i = many[0] + blockIdx.x; i < many[1]; i += gridDim.x)
      step.template visit<true>(p.apart + i);
    for (u32 i = few[0] + blockIdx.x * step.warps + step.warp; i < few[1];
         i += gridDim.x * step.warps)
      step.template visit<false>(i);
  }
  SR_FN void at(i64 event, u64 bits) {
    place = p.places[event];
    node = int(place / p.words);
    word = int(place % p.words);
    mask = bits;
  }
  SR_FN Pair& values(i64 at) const { return reinterpret_cast<Pair*>(p.value)[at * 32 + lane]; }
  // Whether the lane's two sources are in a mask.
  SR_FN bool first(u64 bits) const { return bits >> lane & 1; }
  SR_FN bool second(u64 bits) const { return bits >> (lane + 32) & 1; }
  SR_FN Pair of(u64 bits, const Pair& x) const {
    return {first(bits) ? x.x[0] : 0, second(bits) ? x.x[1] : 0};
  }
  // Zeros in place of the masks of a level.
  SR_FN void clear(int level) const {
    u64* const to = masks(level);
    const u32 first = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    for (int list = 0; list < 2; ++list) {
      const u32* const bounds = p.bounds + list * i64(p.levels) + level;
      for (u32 i = bounds[0] + first; i < bounds[1]; i += all)
        to[p.places[(list ? p.apart : 0) + i]] = 0;
    }
  }
  // The sum of the values of neighbours in another level, for the sources that the event shares
  // with them. What passes along each edge, `paths` times the value, is added to `load`, if it is
  // given.
  template <bool SHARED>
  SR_FN Pair gather(const i64* begin, const int* ends, const u64* others, const Pair& paths,
                    double* load) const {
    const i64 end = begin[node + 1], step = SHARED ? 32 * warps : 32;
    Pair sum{0, 0};
    for (i64 e = begin[node] + (SHARED ? 32 * warp : 0); e < end; e += step) {
      const u32 other = e + lane < end ? u32(ends[e + lane]) * u32(p.words) + u32(word) : 0;
      const u64 both = e + lane < end ? others[other] & mask : 0;
      double carried = 0;  // by the lane's edge
      for (u32 which = ballot(both != 0); which;) {
        int from[AHEAD];  // [AHEAD]
        Pair x[AHEAD];    // [AHEAD]
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
          from[k] = which ? bit_length(which & (0 - which)) - 1 : -1;
          which &= which - 1;
          const u64 bits = shuffle(both, from[k] < 0 ? 0 : from[k]);
          const i64 there = shuffle(other, from[k] < 0 ? 0 : from[k]);
          x[k] = {0, 0};
          if (from[k] >= 0 && (first(bits) || second(bits))) x[k] = of(bits, values(there));
        }
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) sum = plus(sum, x[k]);
        if (load) {
#pragma unroll
          for (int k = 0; k < AHEAD; ++k) {
            if (from[k] < 0) break;
            const double flow = warp_sum(paths.x[0] * x[k].x[0] + paths.x[1] * x[k].x[1]);
            if (lane == from[k]) carried = flow;
          }
        }
      }
      if (load && carried != 0) load[e + lane] += carried;
    }
    return SHARED ? block_sum(sum) : sum;
  }
  SR_FN static Pair plus(const Pair& x, const Pair& y) {
    return {x.x[0] + y.x[0], x.x[1] + y.x[1]};
  }
  SR_FN static double warp_sum(double x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += shuffle_xor(x, step);
    return x;
  }
  // The sum over the warps of the block, by lanes.
  SR_FN Pair block_sum(const Pair& x) const {
    __syncthreads();  // between reading the last parts and writing these
    parts[warp * 32 + lane] = x;
    __syncthreads();  // between writing the parts and reading them
    Pair sum{0, 0};
    for (int i = 0; i < warps; ++i) sum = plus(sum, parts[i * 32 + lane]);
    return sum;
  }
};

// Of level 0 there is one path each, which PathStart has written.
struct PathCount : PathEvents {
  SR_FN explicit PathCount(const PathParams& params) : PathEvents(params) {}

  SR_FN static void run(const PathParams& p) {
    PathEvents::run<PathCount>(p);
    if (blockIdx.x == 0 && threadIdx.x < 2) {  // the next level begins empty
      u32* const end = p.bounds + threadIdx.x * i64(p.levels) + p.level + 1;
      end[1] = end[0];
    }
    if (p.level > 1) PathEvents(p).clear(p.level - 2);
  }
  template <bool SHARED>
  SR_FN void visit(i64 event) {
    at(event, 0);
    mask = masks(p.level)[place];
    if (lane == 0 && !(SHARED && warp)) {
      p.events[event] = mask;
      p.seen[place] |= mask;
    }
    if (p.level == 0) return;
    const Pair none{0, 0};
    const Pair paths = gather<SHARED>(p.back, p.before, masks(p.level - 1), none, nullptr);
    if (SHARED && warp) return;
    if (first(mask)) values(place).x[0] = paths.x[0];
    if (second(mask)) values(place).x[1] = paths.x[1];
    if (!(paths.x[0] <= p.most && paths.x[1] <= p.most)) *p.trouble = 1;
  }
};

struct PathMeet : PathEvents {
  SR_FN explicit PathMeet(const PathParams& params) : PathEvents(params) {}

  SR_FN static void run(const PathParams& p) { PathEvents::run<PathMeet>(p); }

  template <bool SHARED>
  SR_FN void visit(i64 event) {
    at(event, p.events[event]);
    u64* const next = masks(p.level + 1);
    u32* const few = p.bounds + p.level + 2;
    const i64 end = p.first[node + 1], step = SHARED ? 32 * warps : 32;
    for (i64 e = p.first[node] + (SHARED ? 32 * warp : 0); e < end; e += step) {
      bool fresh = false, many = false;
      u32 to = 0;
      if (e + lane < end) {
        const int u = p.near[e + lane];
        to = u32(u) * u32(p.words) + u32(word);
        const u64 bits = mask & ~p.seen[to];
        fresh = bits & ~load_current(next + to) && !atomic_or(next + to, bits);
        many = fresh && p.many[u];
      }
      if (many) p.places[p.apart + fetch_add(few + p.levels, 1)] = to;
      const u32 light = ballot(fresh && !many);
      if (!light) continue;
      u32 begin = 0;
      if (lane == 0) begin = fetch_add(few, u32(popcount(light)));
      begin = shuffle(begin, 0);
      if (fresh && !many) p.places[begin + u32(popcount(light & ((1u << lane) - 1)))] = to;
    }
  }
};

struct PathShare : PathEvents {
  SR_FN explicit PathShare(const PathParams& params) : PathEvents(params) {}

  SR_FN static void run(const PathParams& p) {
    PathEvents::run<PathShare>(p);
    PathEvents(p).clear(p.level + 2);
  }
  template <bool SHARED>
  SR_FN void visit(i64 event) {
    at(event, p.events[event]);
    const Pair paths = of(mask, values(place));
    const Pair worth = gather<SHARED>(p.first, p.near, masks(p.level + 1), paths,
                                      p.arc_load ? p.arc_load + word * p.arcs : nullptr);
    if (SHARED && warp) return;
    if (lane == 0) masks(p.level)[place] = mask;
    if (p.level == 0) return;
    const double through = warp_sum(paths.x[0] * worth.x[0] + paths.x[1] * worth.x[1]);
    if (lane == 0) p.node_load[i64(word) * p.n + node] += through;
    const double demand = p.demand ? p.demand[node] : 1;
    if (first(mask)) values(place).x[0] = (p.stress ? demand : demand / paths.x[0]) + worth.x[0];
    if (second(mask)) values(place).x[1] = (p.stress ? demand : demand / paths.x[1]) + worth.x[1];
  }
};

}  // namespace sr

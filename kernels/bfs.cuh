// Kernels: breadth-first searches from many sources at once, a bit of each (Then et al., The more the
// merrier: efficient multi-source graph traversal, 2014; Liu, Huang and Hu, iBFS, 2016).
//
//     HopStart     the first level: the sources and the nodes after them, a warp for each source
//     HopLevel     one more, a warp for each node in turn
//     HopSums      what the counts of some levels add to the results of each source
//     HopRows      distances, a row for each source
//
// Every node has a row of bits that say which searches have met it. A level joins to a node's row
// those of the nodes before it. These have the searches that met them in earlier levels, too: they
// have met the node by now, and no other set of bits is needed. Two matrices of rows take turns. Rows
// that are equal in both are not copied: those of nodes that were not met in the last level either.
//
// How many nodes each search meets is added up in bit slices: `planes` of carries, by all threads.
#pragma once
#include "base.cuh"

namespace sr {

// The same fields in the same order in semiring_mm/gpu/bfs.py.
struct HopParams {
  const i64* first;   // [n + 1]: edges from each node
  const int* near;    // [arcs]: their heads
  const i64* back;    // [n + 1]: edges to each node
  const int* before;  // [arcs]: their tails
  const int* heavy;   // [heavies]: nodes that a block's warps share, of more than `limit` edges
  const int* sources;  // [columns]
  const u32* seen;    // [n + 1][words]: the last row is zeros
  u32* next;          // [n + 1][words]
  const u8* state;    // [n + 1]: of `seen`; of the last row 0
  u8* following;      // [n + 1]: of `next`
  u32* counts;        // [levels][32 words]: nodes that each search meets
  u32* alive;         // [n + ...]: whether any node is met in a level
  u32* digits;        // [places][n + 1][words]: the binary digits of distances
  const i64* radius;  // [radii]
  i64* results;       // [4][room], from the first column on
  i64* within;        // [radii][room]
  u64* table;         // [n + ...]: pairs at each distance
  void* rows;         // [columns][pitch]
  i64 room, pitch, unreached;  // the low bytes of `unreached` are an entry of `rows`
  int n, words, columns, heavies, limit;
  int level, levels;  // the first one, and how many: those of `counts`
  int radii, places;
};

enum { CHANGED = 1, FULL = 2 };  // of a node's row: in the last level; by all searches

// The first level, of words that are zeros. Edges lead to other nodes.
template <bool DIGITS>
struct HopStart {
  SR_FN static void run(const HopParams& p) {
    const int lane = int(threadIdx.x) % 32;
    const int column = int((blockIdx.x * blockDim.x + threadIdx.x) / 32);
    if (column >= p.columns) return;
    const int source = p.sources[column], word = column / 32;
    const u32 bit = 1u << column % 32;
    if (lane == 0) {
      atomic_or(p.next + i64(source) * p.words + word, bit);
      p.following[source] = CHANGED;
    }
    u32 met = 0;
    for (i64 e = p.first[source] + lane; e < p.first[source + 1]; e += 32) {
      const int u = p.near[e];
      if (atomic_or(p.next + i64(u) * p.words + word, bit) & bit) continue;  // a parallel edge
      ++met;
      p.following[u] = CHANGED;
      if constexpr (DIGITS) atomic_or(p.digits + i64(u) * p.words + word, bit);
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) met += shuffle_xor(met, mask);
    if (lane == 0) {
      p.counts[column] = met;
      if (met) p.alive[1] = 1;
    }
  }
};

// A lane has EACH words of a row.
template <int EACH, bool DIGITS>
struct HopLevel {
  using Row = Pack<u32, EACH>;
  static constexpr int WIDTH = 32 * EACH;      // words of a row
  static constexpr int AHEAD = 4;              // rows that are under way at once
  static constexpr int LIST = 32 + AHEAD;      // of nodes, for a warp
  static constexpr int PLANES = 8;             // so a warp counts up to 255 nodes
  static constexpr int SUMS = PLANES + 5;      // and a block has up to 32 warps
  static_assert(LIST * sizeof(int) % 16 == 0, "nodes of the list are read four at once");

  const HopParams& p;
  const int lane, warp, warps;
  int* const some;   // whether the block meets a node
  int* const list;   // [LIST]: a warp's nodes whose rows are to be read
  u32* const words;  // [max(warps, warps / 2 SUMS)][WIDTH]
  Row full;          // the bits of columns that have a source
  Row planes[SUMS];  // [SUMS]
  bool met = false;

  SR_FN explicit HopLevel(const HopParams& params)
      : p(params), lane(int(threadIdx.x) % 32), warp(int(threadIdx.x) / 32),
        warps(int(blockDim.x) / 32), some(shared_memory<int>()), list(some + 4 + warp * LIST),
        words(reinterpret_cast<u32*>(some + 4 + warps * LIST)) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int left = p.columns - 32 * (lane * EACH + i);
      full.x[i] = left >= 32 ? ~0u : left > 0 ? (1u << left) - 1 : 0;
#pragma unroll
      for (int k = 0; k < SUMS; ++k) planes[k].x[i] = 0;
    }
  }

  SR_FN static void run(const HopParams& p) {
    if (!p.alive[p.level - 1]) return;
    HopLevel level(p);
    if (threadIdx.x == 0) *level.some = 0;
    __syncthreads();  // between clearing the flag and setting it
    for (int i = int(blockIdx.x); i < p.heavies; i += int(gridDim.x)) level.share(p.heavy[i]);
    const int all = int(gridDim.x) * level.warps;
    for (int v = int(blockIdx.x) * level.warps + level.warp; v < p.n; v += all) level.visit(v);
    level.add_up();
  }

  SR_FN static const Row& row(const u32* rows, i64 v, int lane) {
    return reinterpret_cast<const Row*>(rows)[v * 32 + lane];
  }
  SR_FN static Row& row(u32* rows, i64 v, int lane) {
    return reinterpret_cast<Row*>(rows)[v * 32 + lane];
  }
  SR_FN static bool any(const Row& x) {  // for all lanes
    u32 bits = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) bits |= x.x[i];
    return ballot(bits != 0) != 0;
  }
  SR_FN static Row without(Row x, const Row& y) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) x.x[i] &= ~y.x[i];
    return x;
  }

  // The bits of `missing` that are set in the rows of neighbours changed in the level before. The
  // warp reads 32 edges at a time, from `begin` on, `step` apart.
  SR_FN Row join(i64 begin, i64 end, i64 step, const Row& missing) const {
    Row rest = missing;
    for (i64 e = begin; e < end; e += step) {
      const int u = e + lane < end ? p.before[e + lane] : p.n;
      const bool changed = p.state[u] & CHANGED;
      const u32 which = ballot(changed);
      const int count = popcount(which);
      __syncwarp();  // between reading the last list and writing this
      if (changed) list[popcount(which & ((1u << lane) - 1))] = u;
      if (lane < AHEAD) list[count + lane] = p.n;
      __syncwarp();  // between writing the list and reading it
#pragma unroll 1
      for (int i = 0; i < count; i += AHEAD) {
        const Pack<int, AHEAD> nodes = *reinterpret_cast<const Pack<int, AHEAD>*>(list + i);
        Row x[AHEAD];  // [AHEAD]
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) x[k] = row(p.seen, nodes.x[k], lane);
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) rest = without(rest, x[k]);
        if (!any(rest)) return missing;
      }
    }
    return without(missing, rest);
  }
  // A node's row, with what was found for it.
  SR_FN void settle(int v, u8 before, Row own, const Row& found, bool lacks) {
    const bool grows = any(found);
#pragma unroll
    for (int i = 0; i < EACH; ++i) own.x[i] |= found.x[i];
    if (grows || before & CHANGED) row(p.next, v, lane) = own;
    if (lane == 0) p.following[v] = u8((grows ? CHANGED : 0) | (lacks ? 0 : FULL));
    if (!grows) return;
    met = true;
    if constexpr (DIGITS)
      for (int i = 0; i < p.places; ++i)
        if (p.level >> i & 1) {
          Row& digit = row(p.digits + i64(i) * (p.n + 1) * WIDTH, v, lane);
#pragma unroll
          for (int k = 0; k < EACH; ++k) digit.x[k] |= found.x[k];
        }
    add<PLANES>(found);
  }
  SR_FN void visit(int v) {
    const i64 begin = p.back[v], end = p.back[v + 1];
    if (end - begin > p.limit) return;  // a heavy one
    const u8 before = p.state[v];
    if (before == FULL) {  // in both matrices
      if (lane == 0) p.following[v] = FULL;
      return;
    }
    const Row own = row(p.seen, v, lane), missing = without(full, own);
    const Row found = any(missing) ? join(begin, end, 32, missing) : missing;
    settle(v, before, own, found, any(without(missing, found)));
  }
  // A node of many edges, by all warps.
  SR_FN void share(int v) {
    const i64 begin = p.back[v], end = p.back[v + 1];
    const u8 before = p.state[v];
    if (before == FULL) {
      if (threadIdx.x == 0) p.following[v] = FULL;
      return;
    }
    const Row own = row(p.seen, v, lane), missing = without(full, own);
    row(words, warp, lane) =
        any(missing) ? join(begin + 32 * warp, end, 32 * warps, missing) : missing;
    __syncthreads();  // between storing what each warp finds and joining it
    if (warp == 0) {
      Row found = row(words, 0, lane);
      for (int i = 1; i < warps; ++i)
#pragma unroll
        for (int k = 0; k < EACH; ++k) found.x[k] |= row(words, i, lane).x[k];
      settle(v, before, own, found, any(without(missing, found)));
    }
    __syncthreads();  // between reading what the warps found and storing the next
  }

  // --- counts -----------------------------------------------------------------------------------

  // planes += one for each bit.
  template <int COUNT>
  SR_FN void add(Row carry) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        const u32 old = planes[k].x[i];
        planes[k].x[i] = old ^ carry.x[i];
        carry.x[i] &= old;
      }
  }
  // planes += those of another warp.
  SR_FN void add(const u32* other) {
    Row carry;
#pragma unroll
    for (int i = 0; i < EACH; ++i) carry.x[i] = 0;
#pragma unroll
    for (int k = 0; k < SUMS; ++k) {
      const Row more = row(other, k, lane);
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        const u32 a = planes[k].x[i], b = more.x[i], c = carry.x[i];
        planes[k].x[i] = a ^ b ^ c;
        carry.x[i] = (a & b) | (a & c) | (b & c);
      }
    }
  }
  // Add the counts of all warps to those of the level.
  SR_FN void add_up() {
    if (met && lane == 0) *some = 1;
    __syncthreads();  // between setting the flag, and sharing nodes, and what follows
    if (!*some) return;
    if (threadIdx.x == 0) p.alive[p.level] = 1;
    constexpr int PART = SUMS * WIDTH;
    for (int half = warps / 2; half > 0; half /= 2) {
      if (warp >= half && warp < 2 * half)
#pragma unroll
        for (int k = 0; k < SUMS; ++k) row(words + (warp - half) * PART, k, lane) = planes[k];
      __syncthreads();  // between storing planes and adding them to others
      if (warp < half) add(words + warp * PART);
      __syncthreads();  // between reading planes and storing others
    }
    if (warp == 0)
#pragma unroll
      for (int k = 0; k < SUMS; ++k) row(words, k, lane) = planes[k];
    __syncthreads();  // between storing the sums and reading their digits
    u32* const counts = p.counts;
    for (int column = int(threadIdx.x); column < 32 * WIDTH; column += int(blockDim.x)) {
      u32 count = 0;
#pragma unroll
      for (int k = 0; k < SUMS; ++k)
        count |= (words[k * WIDTH + column / 32] >> column % 32 & 1u) << k;
      if (count) atomic_add(counts + column, count);
    }
  }
};

// A thread for each column of `counts`, in whole warps.
struct HopSums {
  SR_FN static void run(const HopParams& p) {
    const int column = int(blockIdx.x * blockDim.x + threadIdx.x);
    const bool mine = column < p.columns;
    i64 reached = 0, total = 0, far = 0;
    double inverse = 0;
    for (int i = 0; i < p.levels; ++i) {
      const i64 level = p.level + i;
      const u64 count = mine ? p.counts[i64(i) * 32 * p.words + column] : 0;
      if (count) far = level;
      reached += i64(count);
      total += i64(count) * level;
      inverse += double(count) / double(level);
      u64 pairs = count;
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) pairs += shuffle_xor(pairs, mask);
      if (pairs && threadIdx.x % 32 == 0) atomic_add(p.table + level, pairs);
    }
    if (!mine || !reached) return;
    i64* to = p.results + column;
    to[0] += reached;
    to[p.room] += total;
    to[2 * p.room] = far;
    to[3 * p.room] = bits_as<i64>(bits_as<double>(to[3 * p.room]) + inverse);
    for (int r = 0; r < p.radii; ++r) {
      i64 near = 0;
      for (int i = 0; i < p.levels && p.level + i <= p.radius[r]; ++i)
        near += p.counts[i64(i) * 32 * p.words + column];
      p.within[r * p.room + column] += near;
    }
  }
};

// A warp for 32 nodes, one each, and 32 columns.
template <class Entry>
struct HopRows {
  SR_FN static void run(const HopParams& p) {
    const int lane = int(threadIdx.x) % 32, strips = (p.columns + 31) / 32;
    const i64 tile = (i64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const int word = int(tile % strips);
    const i64 node = tile / strips * 32 + lane, at = node * p.words + word;
    if (node >= p.n) return;
    const u32 seen = p.seen[at];
    u32 distance[32];  // [32]
#pragma unroll
    for (int i = 0; i < 32; ++i) distance[i] = 0;
    for (int k = 0; k < p.places; ++k) {
      const u32 digit = p.digits[i64(k) * (p.n + 1) * p.words + at];
#pragma unroll
      for (int i = 0; i < 32; ++i) distance[i] |= (digit >> i & 1u) << k;
    }
    const Entry unreached = *reinterpret_cast<const Entry*>(&p.unreached);
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (32 * word + i < p.columns)
        static_cast<Entry*>(p.rows)[i64(32 * word + i) * p.pitch + node] =
            seen >> i & 1u ? Entry(distance[i]) : unreached;
  }
};

}  // namespace sr

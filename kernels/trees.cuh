// Kernels: predecessors from distances alone, and rows of predecessors that may not be trees.
//
// An edge (k, j) is tight if its weight is the distance from k to j. Best paths consist of tight
// edges: where an edge is not, there is a better way around it. So the predecessor of j on the way
// from i is i itself if that edge is tight, or else the k of a tight edge for which
// d(i, k) ⊗ w(k, j) is the best. Few edges of a dense graph are tight, so this takes far less time
// than to carry predecessors through the closure. Where many edges into j are tight (as among points
// of a plane), `split` finds nodes on the way by the last changes of entries during the closure.
//
// If each predecessor is strictly nearer than its node, there is no cycle. Else it may be one of
// several that are equally good, and close a cycle with others: `attach` chooses again. Over orders,
// as max_min, most are, and `attach` makes all but those on single edges (`later`).
#pragma once
#include "closure.cuh"

namespace sr {

struct TreesParams {
  const void* from;  // [batch][n][n]: weights; zero: no edge
  const void* a;     // [batch][n][n]: their closure
  int* preds;        // [batch][n][n]
  void* turned;      // [batch][n][pitch] of Storage: by columns, a strip of rows of the closure
  u32* tight;        // [batch][2][n][words]: a bit for each tight edge: by columns, by rows
  u32* lines;        // [batch][n][ceil(words / 32)]: a bit for each word by rows that is not 0
  u8* open;          // [batch][n]: 1 for a row in which predecessors may close a cycle
  const u16* changes;  // [batch][n][change_pitch]: see EliminationParams; or none
  i64 from_batch, from_m, from_n, a_batch, a_m, a_n, pred_batch, pred_m, pred_n;  // in elements
  i64 zero;          // the low bytes are a Storage
  double unit;       // relative difference within which rounded values are as good as each other
  int n, batch, words;
  int first, rows, pitch;  // the strip; `pitch` is `rows` rounded up to whole tiles of `choose`
  int change_pitch, grain, side;  // of `changes`; nodes of a tile
  int many;          // tight edges into a node above which `split` takes less time
  int wide;          // whether four entries of a row of the closure can be read at once
  int later;         // 1: `attach` makes predecessors that are not the start of a single edge
};

// Up to four kernels, one after the other, for a matrix of the batch. FRESH: predecessors are made, that
// of an edge (i, j) being i; else they are those of the weights, and P[i, j] takes P[k, j].
template <class A, bool FRESH>
struct Trees {
  using Word = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int THREADS = 256, WARPS = THREADS / 32;
  static constexpr int SIDE = 32, PITCH = SIDE + 1;  // + 1: no bank conflicts
  // Rows of a lane, and of a warp, in `choose`; edges whose distances are read at once.
  static constexpr int EACH = 32 / int(sizeof(Word)), ROWS = 32 * EACH, AHEAD = 2;
  static constexpr int LINE = ROWS + 4;  // + 4: no bank conflicts
  enum { KEEP = -(1 << 30) };            // a predecessor that stays

  const TreesParams& p;
  const Storage* weights;
  const Storage* closed;
  Storage* turned;
  u32* tight;
  u32* lines;
  u8* open;
  int* preds;
  const u16* changes;
  Word zero;

  SR_FN Trees(const TreesParams& p_, i64 matrix)
      : p(p_),
        weights(static_cast<const Storage*>(p_.from) + matrix * p_.from_batch),
        closed(static_cast<const Storage*>(p_.a) + matrix * p_.a_batch),
        turned(static_cast<Storage*>(p_.turned) + matrix * p_.n * p_.pitch),
        tight(p_.tight + matrix * 2 * p_.n * p_.words),
        lines(p_.lines + matrix * p_.n * ((p_.words + 31) / 32)),
        open(p_.open + matrix * p_.n),
        preds(p_.preds + matrix * p_.pred_batch),
        changes(p_.changes ? p_.changes + matrix * p_.n * p_.change_pitch : nullptr),
        zero(A::decode(*reinterpret_cast<const Storage*>(&p_.zero))) {}

  SR_FN static int lane() { return int(threadIdx.x) % 32; }
  SR_FN static int warp() { return int(threadIdx.x) / 32; }
  SR_FN Word weight(int i, int j) const { return A::decode(weights[i * p.from_m + j * p.from_n]); }
  SR_FN int& pred(int i, int j) const { return preds[i * p.pred_m + j * p.pred_n]; }
  SR_FN u32* tight_into(int j) const { return tight + i64(j) * p.words; }  // [words]
  SR_FN u32* tight_from(int i) const { return tight + (i64(p.n) + i) * p.words; }  // [words]

  SR_FN u32* lines_from(int i) const { return lines + i64(i) * ((p.words + 31) / 32); }

  // d ⊗ w as a closure stores it.
  SR_FN static Word path(Word d, Word w) {
    const Word x = A::mul(d, w);
    if constexpr (A::PLAIN) return x;
    else return A::decode(A::encode(x));
  }
  // What is worse than all numbers are, and what is better.
  SR_FN static Word best() {
    constexpr bool SIGNED = Word(-1) < Word(0);
    const Word least = Is<Word>::floating ? -infinity<Word>()
                       : SIGNED           ? Word(u64(1) << (8 * sizeof(Word) - 1))
                                          : Word(0);
    if constexpr (Is<Word>::floating) return A::LEAST ? least : -least;
    else return A::LEAST ? least : ~least;
  }
  // Whether x is no worse than y, but for rounding.
  SR_FN static bool as_good(Word x, Word y, double unit) {
    if (!A::better(y, x)) return true;
    if constexpr (Is<Word>::floating) return abs(x - y) <= Word(unit) * abs(y);
    else return false;
  }
  // Whether a weight is a distance. Where it is not an integer, rounding may have made the distance a
  // little less than the only edge's: sums over other nodes as good as it.
  SR_FN bool tied(Word w, Word d) const {
    if constexpr (Is<Word>::floating)
      if (p.unit != 0 && w != Word(i64(w))) return as_good(w, d, p.unit / 4);
    return w == d;
  }
  // Take the lowest bit of a word that has one, and return its number.
  SR_FN static int take_bit(u32& word) {
    const int bit = bit_length(word & (0u - word)) - 1;
    word &= word - 1;
    return bit;
  }

  // Whether a search among all tight edges into j takes longer than `split`. All lanes of a warp ask
  // for the same j.
  SR_FN bool many(int j) const {
    if (!changes) return false;
    const u32* edges = tight_into(j);
    int count = 0;
    for (int word = lane(); word < p.words; word += 32) count += popcount(edges[word]);
    for (int mask = 16; mask; mask /= 2) count += shuffle_xor(count, mask);
    return count > p.many;
  }

  // --- the tight edges that leave the nodes of the strip, and its distances by columns -----------

  // A warp takes SIDE x SIDE entries.
  SR_FN static void find(const TreesParams& p) {
    const i64 across = (p.n + SIDE - 1) / SIDE, tiles = across * ((p.rows + SIDE - 1) / SIDE);
    const i64 own = i64(blockIdx.x) * WARPS + warp(), matrix = own / tiles;
    if (matrix >= p.batch) return;
    const int tile = int(own % tiles);
    const int i0 = p.first + tile / int(across) * SIDE, j0 = tile % int(across) * SIDE;
    Trees(p, matrix).find(i0, j0);
  }
  SR_FN void find(int i0, int j0) const {
    const int j = j0 + lane(), end = p.first + p.rows;
    Storage* part = shared_memory<Storage>() + warp() * SIDE * PITCH;  // [SIDE][PITCH]
    u32 into = 0, out = 0;  // of column `lane`, and of row `lane`
#pragma unroll 8
    for (int e = 0; e < SIDE; ++e) {
      const int i = i0 + e;
      Storage own{};
      bool found = false;
      if (i < end && j < p.n) {
        own = closed[i * p.a_m + j * p.a_n];
        const Word d = A::decode(own), w = weight(i, j);
        found = i != j && d != zero && tied(w, d);
      }
      into |= u32(found) << e;
      const u32 row = ballot(found);
      if (lane() == e) out = row;
      part[e * PITCH + lane()] = own;
    }
    __syncwarp();  // between storing distances and reading those of other lanes
    if (j < p.n) tight_into(j)[i0 / 32] = into;
    if (i0 + lane() < end) {
      tight_from(i0 + lane())[j0 / 32] = out;
      if (out) atomic_or(lines_from(i0 + lane()) + j0 / 1024, 1u << j0 / 32 % 32);
      if (j0 == 0) open[i0 + lane()] = 0;
    }
#pragma unroll 8
    for (int e = 0; e < SIDE; ++e)
      if (j0 + e < p.n)
        turned[i64(j0 + e) * p.pitch + (i0 - p.first) + lane()] = part[lane() * PITCH + e];
  }

  // --- predecessors in the strip ----------------------------------------------------------------

  // A block takes ROWS x WARPS entries, a warp a column of them.
  SR_FN static void choose(const TreesParams& p) {
    const i64 across = (p.n + WARPS - 1) / WARPS, tiles = across * (p.pitch / ROWS);
    const int tile = int(blockIdx.x % tiles);
    const int r0 = tile / int(across) * ROWS, j0 = tile % int(across) * WARPS;
    const Trees trees(p, blockIdx.x / tiles);
    int* found = shared_memory<int>();  // [WARPS][LINE]
    if (j0 + warp() < p.n)
      trees.choose(r0 + lane() * EACH, j0 + warp(), found + warp() * LINE + lane() * EACH);
    __syncthreads();  // between storing predecessors and reading those of other warps
#pragma unroll 4
    for (int e = int(threadIdx.x); e < ROWS * WARPS; e += THREADS) {
      const int r = e / WARPS, c = e % WARPS;
      if (r0 + r >= p.rows || j0 + c >= p.n) continue;
      const int x = found[c * LINE + r];
      if (x != KEEP) trees.pred(p.first + r0 + r, j0 + c) = x;
    }
  }

  // A lane's rows of a column of the strip.
  struct Line {
    static constexpr int N = EACH * int(sizeof(Storage)) > 16 ? 16 / int(sizeof(Storage)) : EACH;
    Pack<Storage, N> part[EACH / N];
    SR_FN explicit Line(const Storage* from) {
#pragma unroll
      for (int e = 0; e < EACH / N; ++e)
        part[e] = reinterpret_cast<const Pack<Storage, N>*>(from)[e];
    }
    SR_FN Word operator[](int q) const { return A::decode(part[q / N].x[q % N]); }
  };

  // Column j of the lane's rows, from row r of the strip on. All lanes of a warp have the same
  // column.
  SR_FN void choose(int r, int j, int* found) const {
    if (many(j)) {
#pragma unroll
      for (int q = 0; q < EACH; ++q) found[q] = KEEP;
      return;
    }
    const int i0 = p.first + r, end = p.first + p.rows;
    const Line own(turned + i64(j) * p.pitch + r);
    const u32* edges = tight_into(j);
    u32 direct = 0, searched = 0, sure = 0;  // a bit for each row
    int k[EACH];                             // [EACH]: the start of the edge, or -1
#pragma unroll
    for (int q = 0; q < EACH; ++q) {
      const int i = i0 + q;
      k[q] = -1;
      if (i >= end || i == j || own[q] == zero) continue;
      if (edges[i / 32] >> i % 32 & 1) direct |= 1u << q;
      else searched |= 1u << q;
    }
    search(r, j, p.unit, p.later ? 0 : searched, k, sure);
    u32 none = 0;
#pragma unroll
    for (int q = 0; q < EACH; ++q)
      if (k[q] < 0) none |= 1u << q;
    search(r, j, 64 * p.unit, p.later ? 0 : searched & none, k, sure);  // sums of many edges are rounded so much
#pragma unroll
    for (int q = 0; q < EACH; ++q) {
      const int i = i0 + q;
      int x = FRESH ? int(NONE) : int(KEEP);
      if (direct >> q & 1) {
        if (FRESH) x = i;
      } else if (searched >> q & 1) {
        if (!(sure >> q & 1)) open[i] = 1;
        if (FRESH) x = k[q] < 0 ? j : k[q];  // j: it has none; the host finds it on a cycle
        else if (k[q] >= 0) x = pred(k[q], j);
      }
      found[q] = x;
    }
  }

  // The tight edges into j that give the distances of the rows that wait, but for rounding: those
  // from nearer nodes first, for which a row is `sure`, and of these the best.
  SR_FN void search(int r, int j, double unit, u32 waiting, int (&k)[EACH], u32& sure) const {
    u32 some = ballot(waiting);
    if (!some) return;
    const Line own(turned + i64(j) * p.pitch + r);
    const u32* edges = tight_into(j);
    Word limit[EACH], value[EACH];  // [EACH]: the worst that counts, and that of the edge k
#pragma unroll
    for (int q = 0; q < EACH; ++q) {
      limit[q] = waiting >> q & 1 ? own[q] : best();
      if constexpr (Is<Word>::floating)
        if (unit != 0 && (waiting >> q & 1))
          limit[q] += (A::LEAST ? 1 : -1) * Word(unit) * abs(own[q]);
    }
    for (int w0 = 0; some && w0 < p.words; w0 += 32) {
      u32 mine = w0 + lane() < p.words ? edges[w0 + lane()] : 0;
      while (some && ballot(mine)) {
        int start = -1;  // each lane reads the weight of an edge
        Word w = zero;
        if (mine) {
          start = (w0 + lane()) * 32 + take_bit(mine);
          w = weight(start, j);
        }
        for (u32 there = ballot(start >= 0); there;) {
          int from[AHEAD];        // [AHEAD]; the last ones may repeat
          Word last[AHEAD];       // [AHEAD]: their weights
          Word way[AHEAD][EACH];  // [AHEAD][EACH]: distances to them
          int at = 0;
#pragma unroll
          for (int u = 0; u < AHEAD; ++u) {
            at = there ? bit_length(there & (0u - there)) - 1 : at;
            there &= there - 1;
            from[u] = shuffle(start, at);
            last[u] = shuffle(w, at);
            const Line ways(turned + i64(from[u]) * p.pitch + r);
#pragma unroll
            for (int q = 0; q < EACH; ++q) way[u][q] = ways[q];
          }
          bool good[AHEAD];  // [AHEAD]: whether any row's limit is reached
#pragma unroll
          for (int u = 0; u < AHEAD; ++u) {
            good[u] = false;
#pragma unroll
            for (int q = 0; q < EACH; ++q) good[u] |= !A::better(limit[q], path(way[u][q], last[u]));
          }
#pragma unroll
          for (int u = 0; u < AHEAD; ++u) {
            if (!good[u]) continue;  // as most are not
#pragma unroll
            for (int q = 0; q < EACH; ++q) {
              const Word d = way[u][q], x = path(d, last[u]);
              if (!(waiting >> q & 1) || A::better(limit[q], x) || d == zero) continue;
              const bool nearer = A::better(d, own[q]), before = sure >> q & 1;
              if (k[q] >= 0 && (nearer == before ? !A::better(x, value[q]) : before)) continue;
              k[q] = from[u];
              value[q] = x;
              if (!nearer) continue;
              sure |= 1u << q;
              if (A::better(own[q], x)) continue;
              waiting &= ~(1u << q);  // none is better
              limit[q] = best();
            }
          }
        }
        some = ballot(waiting);
      }
    }
  }

  // --- columns with many tight edges ------------------------------------------------------------
  //
  // An entry that is not a tight edge changed last when the last node m of its path was eliminated: an
  // m for which d(i, m) ⊗ d(m, j) is the distance, among the `grain` nodes that were noted. Its
  // predecessor is that of (m, j), and so on up to a tight edge (k, j), the last one of the path.

  static constexpr int HALF = 16, PARTS = 4;  // lanes of an entry; nodes of each
  static constexpr int ENTRIES = 4;           // of half a warp, at once

  // A block takes a column. Shared memory has a word and two short ones for each node, and three
  // words.
  SR_FN static void split(const TreesParams& p) {
    static_assert(FRESH, "a predecessor is a node of the matrix");
    const Trees trees(p, blockIdx.x / p.n);
    const int j = int(blockIdx.x % p.n);
    if (trees.many(j)) trees.split(j);
  }
  SR_FN void split(int j) const {
    const int n = p.n, first = int(threadIdx.x);
    Word* column = shared_memory<Word>();            // [n]: distances to j
    u16* next = reinterpret_cast<u16*>(column + n);  // [n]: a node on the way to j
    u16* grain = next + n;                           // [n]: 0 for a tight edge, or 1 + a number
    u32* moved = reinterpret_cast<u32*>(grain + n);  // [3]
    const u32* edges = tight_into(j);
#pragma unroll 4
    for (int i = first; i < n; i += THREADS) {
      const Storage own = closed[i * p.a_m + j * p.a_n];
      const u16 change = changes[i64(j) * p.change_pitch + i];
      column[i] = A::decode(own);
      grain[i] = edges[i / 32] >> i % 32 & 1 ? 0 : change + 1;
      next[i] = u16(i);
    }
    if (first == 0) moved[0] = 0;
    __syncthreads();  // between storing the column and reading it
    for (int i0 = warp() * 32; i0 < n; i0 += THREADS) {
      const int i = i0 + lane();
      u32 some = ballot(i < n && i != j && grain[i] && column[i] != zero);
      while (some) {
        int at[ENTRIES];  // [ENTRIES]; the last ones may repeat
        int last = 0;
#pragma unroll
        for (int u = 0; u < ENTRIES; ++u) {
          if (some) last = take_bit(some);
          at[u] = i0 + last;
          if (some) last = take_bit(some);
          if (lane() >= HALF) at[u] = i0 + last;
        }
        middle(at, j, column, grain, next);
      }
    }
    __syncthreads();  // between storing nodes and following them
    for (int span = 1, step = 0; span < n; span *= 2, step = (step + 1) % 3) {  // twice as far
      bool any = false;
      for (int i = first; i < n; i += THREADS) {
        const u16 k = next[i], to = next[k];
        any |= to != k;
        grain[i] = to;
      }
      if (any) atomic_or(moved + step, 1u);
      if (first == 0) moved[(step + 1) % 3] = 0;
      u16* const old = next;
      next = grain;
      grain = old;
      __syncthreads();  // between the steps
      if (!moved[step]) break;
    }
    for (int i0 = first; i0 < n; i0 += ENTRIES * THREADS) {
      int k[ENTRIES];      // [ENTRIES]: the last nodes, or -1
      Storage d[ENTRIES];  // [ENTRIES]: distances to them
#pragma unroll
      for (int u = 0; u < ENTRIES; ++u) {
        const int i = i0 + u * THREADS;
        const bool there = i < n && i != j && column[i] != zero;
        k[u] = there ? next[i] : -1;
        if (there) d[u] = closed[i * p.a_m + k[u] * p.a_n];
      }
#pragma unroll
      for (int u = 0; u < ENTRIES; ++u) {
        const int i = i0 + u * THREADS, x = k[u];
        if (i >= n) break;
        const bool found = x >= 0 && (edges[x / 32] >> x % 32 & 1);
        pred(i, j) = x < 0 ? int(NONE) : found ? x : j;  // j: the host finds it on a cycle
        if (x >= 0 && (!found || (x != i && !A::better(A::decode(d[u]), column[i])))) open[i] = 1;
      }
    }
  }

  // Find next[i] for the entries (i, j) of half a warp.
  SR_FN void middle(const int (&at)[ENTRIES], int j, const Word* column, const u16* grain,
                    u16* next) const {
    const int own = lane() % HALF, upper = lane() / HALF * HALF;
    Pack<Storage, PARTS> way[ENTRIES];  // [ENTRIES][PARTS]: distances to the nodes
#pragma unroll
    for (int u = 0; u < ENTRIES; ++u) {
      const int m = (grain[at[u]] - 1) * p.grain + own * PARTS;
      const Storage* from = closed + at[u] * p.a_m + m * p.a_n;
      if (own * PARTS >= p.grain || m >= p.n) continue;
      if (p.wide) {
        way[u] = *reinterpret_cast<const Pack<Storage, PARTS>*>(from);
        continue;
      }
#pragma unroll
      for (int q = 0; q < PARTS; ++q)
        if (m + q < p.n) way[u].x[q] = from[q * p.a_n];
    }
#pragma unroll
    for (int u = 0; u < ENTRIES; ++u) {
      const int i = at[u], m0 = (grain[i] - 1) * p.grain + own * PARTS;
      const bool inside = own * PARTS < p.grain;
      const Word d = column[i];
      int found = -1;
#pragma unroll
      for (int q = PARTS - 1; q >= 0; --q) {
        const int m = m0 + q;
        if (!inside || m >= p.n || m == i || m == j) continue;
        const Word x = A::decode(way[u].x[q]), rest = column[m];
        if (x != zero && rest != zero && A::better(rest, d) && !A::better(d, path(x, rest))) found = m;
      }
      const u32 exact = ballot(found >= 0) >> upper & 0xffff;
      found = shuffle(found, upper + bit_length(exact & (0u - exact)) - 1 + !exact);
      if (ballot(!exact)) {  // rounding, edges of weight zero or less, or ties
        const int other = nearest(i, j, column, grain);
        if (!exact) found = other;
      }
      if (own == 0 && found >= 0) next[i] = u16(found);
    }
  }

  // The best node for an entry (i, j) of half a warp, or -1.
  SR_FN int nearest(int i, int j, const Word* column, const u16* grain) const {
    const int own = lane() % HALF;
    Word limit = column[i], value = zero;
    if constexpr (Is<Word>::floating)
      if (p.unit != 0) limit += (A::LEAST ? 1 : -1) * Word(p.unit) * abs(limit);
    int found = -1, rank = -1;
    int begin = (grain[i] - 1) * p.grain, end = begin + p.grain;
    if (i / p.side == j / p.side && begin / p.side == i / p.side) {  // by any node of a pivot
      begin = i / p.side * p.side;
      end = begin + p.side;
    }
    if (end > p.n) end = p.n;
    for (int m = begin + own; m < end; m += HALF) {
      const Word way = A::decode(closed[i * p.a_m + m * p.a_n]), rest = column[m];
      if (m == i || m == j || way == zero || rest == zero) continue;
      const Word x = path(way, rest);
      int good = 0;
      if (!A::better(limit, x))
        good = A::better(rest, column[i]) ? 3 : grain[m] < grain[i] ? 2 : 1;
      if (good < rank || (good == rank && !A::better(x, value))) continue;
      found = m;
      rank = good;
      value = x;
    }
    for (int mask = HALF / 2; mask; mask /= 2) {
      const int good = shuffle_xor(rank, mask), m = shuffle_xor(found, mask);
      const Word x = shuffle_xor(value, mask);
      const bool worse = A::better(value, x), better = A::better(x, value);
      if (good < rank || (good == rank && (worse || (!better && m >= found)))) continue;
      found = m;
      rank = good;
      value = x;
    }
    return found;
  }

  // --- open rows: nodes from which predecessors do not lead to the root -------------------------

  // A block takes a row. Nodes from which predecessors lead to the root keep them; breadth-first
  // search from these, along tight edges that are as good as any, gives others to the rest. Rows in
  // which it does not reach all stay open. Shared memory has two words for each node, a bit for
  // each, and a counter.
  SR_FN static void attach(const TreesParams& p) {
    static_assert(FRESH, "a predecessor is a node of the matrix");
    Trees(p, blockIdx.x / p.n).attach(int(blockIdx.x % p.n));
  }
  SR_FN void attach(int i) const {
    if (!open[i]) return;
    int* ends = shared_memory<int>();  // [n]: where predecessors lead; then nodes to search from
    int* next = ends + p.n;            // [n]: the same; then by which nodes others are reached
    u32* astray = reinterpret_cast<u32*>(next + p.n);  // [words]: a bit for each node
    u32* last = astray + p.words;                      // nodes to search from
    const int first = int(threadIdx.x);
    for (int j = first; j < p.n; j += THREADS) {
      const int x = pred(i, j);
      ends[j] = x < 0 ? i : x;
    }
    if (first == 0) *last = 0;
    __syncthreads();  // between storing ends and reading them
    for (int span = 1; span < p.n; span *= 2) {  // each step leads twice as far
      for (int j = first; j < p.n; j += THREADS) next[j] = ends[ends[j]];
      int* const old = ends;
      ends = next;
      next = old;
      __syncthreads();  // between the steps
    }
    for (int word = warp(); word < p.words; word += WARPS) {
      const int j = word * 32 + lane();
      const u32 bits = ballot(j < p.n && ends[j] != i);
      if (lane() == 0) astray[word] = bits;
    }
    __syncthreads();  // between reading ends and using their memory again
    u32* reached = reinterpret_cast<u32*>(next);  // [n]: 0, or n - k for the least k
    for (int j = first; j < p.n; j += THREADS) {
      reached[j] = 0;
      if (!(astray[j / 32] >> j % 32 & 1)) ends[fetch_add(last, 1u)] = j;
    }
    __syncthreads();  // between storing nodes and searching from them
    for (int begin = 0;;) {
      const int end = int(*last);
      if (end == p.n) break;
      for (int at = begin + warp() * 32; at < end; at += THREADS)
        reach(i, at + lane() < end ? ends[at + lane()] : -1, astray, reached);
      __syncthreads();  // between reaching nodes and adding them; all have read `last`
      for (int word = warp(); word < p.words; word += WARPS) {
        const int j = word * 32 + lane();
        const u32 before = astray[word];
        const bool there = (before >> lane() & 1) && reached[j] != 0;
        if (there) {
          pred(i, j) = p.n - int(reached[j]);
          ends[fetch_add(last, 1u)] = j;
        }
        const u32 bits = ballot(there);
        if (lane() == 0) astray[word] = before & ~bits;
      }
      __syncthreads();  // between adding nodes and searching from them
      if (int(*last) == end) break;
      begin = end;
    }
    if (first == 0) open[i] = *last < u32(p.n);
  }

  static constexpr int FEW = 16;  // words of edges that a lane looks through alone

  // Search from a node k for each lane of a warp, or none (-1).
  SR_FN void reach(int i, int k, const u32* astray, u32* reached) const {
    const int parts = (p.words + 31) / 32;
    const Word d = k < 0 ? zero : A::decode(closed[i * p.a_m + k * p.a_n]);
    int count = 0;
    if (d != zero)
      for (int part = 0; part < parts; ++part) count += popcount(lines_from(k)[part]);
    if (count <= FEW)
      for (int part = 0; part < parts && count; ++part)
        for (u32 some = lines_from(k)[part]; some; --count)
          reach(i, k, d, part * 32 + take_bit(some), astray, reached);
    for (u32 rest = ballot(count > FEW); rest;) {
      const int at = take_bit(rest), other = shuffle(k, at);
      const Word far = shuffle(d, at);
      for (int word = lane(); word < p.words; word += 32)
        reach(i, other, far, word, astray, reached);
    }
  }
  // Search among 32 ends of edges from node k, whose distance is d.
  SR_FN void reach(int i, int k, Word d, int word, const u32* astray, u32* reached) const {
    for (u32 some = tight_from(k)[word] & astray[word]; some;) {
      const int j = word * 32 + take_bit(some);
      const Word own = A::decode(closed[i * p.a_m + j * p.a_n]);
      if (as_good(path(d, weight(k, j)), own, 4 * p.unit)) atomic_max(reached + j, u32(p.n - k));
    }
  }
};

struct DoubtfulParams {
  const void* d;      // [rows][n]: distances
  const int* preds;   // [rows][n]; below 0: none
  u8* doubtful;       // [rows]: becomes 1
  i64 d_m, d_n, pred_m, pred_n;  // in elements
  int n;
};

// A block for each row, which stays in the first-level cache while predecessors are looked up.
template <class A>
struct Doubtful {
  using Storage = typename A::Storage;
  static constexpr int THREADS = 256;

  SR_FN static void run(const DoubtfulParams& p) {
    const i64 row = blockIdx.x;
    const Storage* d = static_cast<const Storage*>(p.d) + row * p.d_m;
    const int* preds = p.preds + row * p.pred_m;
    bool doubtful = false;
#pragma unroll 4
    for (int j = int(threadIdx.x); j < p.n; j += THREADS) {
      const int before = preds[j * p.pred_n];
      if (before < 0) continue;
      doubtful |= !A::better(A::decode(d[before * p.d_n]), A::decode(d[j * p.d_n]));
    }
    if (doubtful) p.doubtful[row] = 1;
  }
};

}  // namespace sr

// Kernels: predecessors from distances alone, and rows of predecessors that may not be trees.
//
// An edge (k, j) is tight if its weight is the distance from k to j. Best paths consist of tight
// edges: where an edge is not, there is a better way around it. So the predecessor of j on the way
// from i is i itself if that edge is tight, or else the k of a tight edge for which
// d(i, k) ⊗ w(k, j) is the best. Few edges of a dense graph are tight, so this takes far less time
// than to carry predecessors through the closure.
//
// If each predecessor is strictly nearer than its node, there is no cycle. Else it may be one of
// several that are equally good, and close a cycle with others: `attach` chooses again.
#pragma once
#include "closure.cuh"

namespace sr {

struct TreesParams {
  const void* from;  // [batch][n][n]: weights; zero: no edge
  const void* a;     // [batch][n][n]: their closure
  int* preds;        // [batch][n][n]
  void* turned;      // [batch][n][pitch] of Storage: by columns, a strip of rows of the closure
  u32* tight;        // [batch][2][n][words]: a bit for each tight edge: by columns, by rows
  u8* open;          // [batch][n]: 1 for a row in which predecessors may close a cycle
  i64 from_batch, from_m, from_n, a_batch, a_m, a_n, pred_batch, pred_m, pred_n;  // in elements
  i64 zero;          // the low bytes are a Storage
  double unit;       // relative difference within which rounded values are as good as each other
  int n, batch, words;
  int first, rows, pitch;  // the strip; `pitch` is `rows` rounded up to whole tiles of `choose`
};

// Three kernels, one after the other, for a matrix of the batch. FRESH: predecessors are made, that
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
  u8* open;
  int* preds;
  Word zero;

  SR_FN Trees(const TreesParams& p_, i64 matrix)
      : p(p_),
        weights(static_cast<const Storage*>(p_.from) + matrix * p_.from_batch),
        closed(static_cast<const Storage*>(p_.a) + matrix * p_.a_batch),
        turned(static_cast<Storage*>(p_.turned) + matrix * p_.n * p_.pitch),
        tight(p_.tight + matrix * 2 * p_.n * p_.words),
        open(p_.open + matrix * p_.n),
        preds(p_.preds + matrix * p_.pred_batch),
        zero(A::decode(*reinterpret_cast<const Storage*>(&p_.zero))) {}

  SR_FN static int lane() { return int(threadIdx.x) % 32; }
  SR_FN static int warp() { return int(threadIdx.x) / 32; }
  SR_FN Word weight(int i, int j) const { return A::decode(weights[i * p.from_m + j * p.from_n]); }
  SR_FN int& pred(int i, int j) const { return preds[i * p.pred_m + j * p.pred_n]; }
  SR_FN u32* tight_into(int j) const { return tight + i64(j) * p.words; }  // [words]
  SR_FN u32* tight_from(int i) const { return tight + (i64(p.n) + i) * p.words; }  // [words]

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

  // --- the tight edges that leave the nodes of the strip, and its distances by columns -----------

  static constexpr int FIND_BYTES = THREADS * PITCH * int(sizeof(Storage));

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
      if (j0 == 0) open[i0 + lane()] = 0;
    }
#pragma unroll 8
    for (int e = 0; e < SIDE; ++e)
      if (j0 + e < p.n)
        turned[i64(j0 + e) * p.pitch + (i0 - p.first) + lane()] = part[lane() * PITCH + e];
  }

  // --- predecessors in the strip ----------------------------------------------------------------

  static constexpr int CHOOSE_BYTES = WARPS * LINE * 4;

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
    search(r, j, p.unit, searched, k, sure);
    u32 none = 0;
#pragma unroll
    for (int q = 0; q < EACH; ++q)
      if (k[q] < 0) none |= 1u << q;
    search(r, j, 64 * p.unit, searched & none, k, sure);  // sums of many edges are rounded so much
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
      for (int at = begin + warp(); at < end; at += WARPS) reach(i, ends[at], astray, reached);
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

  // Search from node k, by a warp.
  SR_FN void reach(int i, int k, const u32* astray, u32* reached) const {
    const Word d = A::decode(closed[i * p.a_m + k * p.a_n]);
    if (d == zero) return;
    const u32* edges = tight_from(k);
    for (int word = lane(); word < p.words; word += 32)
      for (u32 some = edges[word] & astray[word]; some;) {
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

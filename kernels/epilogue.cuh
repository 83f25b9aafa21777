// From accumulators to C: scaling, joining, conversion, edges; and the search for the k that won.
#pragma once
#include "steps.cuh"
#include "tile.cuh"

namespace sr {

// What a launch passes; the same fields in the same order in semiring_mm/gpu/source.py. Strides and
// offsets count elements.
struct ProductParams {
  const void* a;
  const void* b;
  void* c;
  void* parts;         // [tiles of C][splits][TM * TN][THREADS] of Word, where k is split
  int* marks;          // [batch][m][n] tiles of k, for FindArg
  int* arg;            // k of each entry, ...
  const int* gather;   // ... or what stands here in row k, where an entry improved
  const u32* flags;    // kinds of entries, found by a scan on the device
  u32* bad;            // set to 1 where a result does not fit
  i64 a_m, a_k, a_batch, b_k, b_n, b_batch, c_m, c_n, c_batch;
  i64 arg_m, arg_n, arg_batch, gather_k, gather_n;
  i64 alpha, beta;     // the low bytes are a Compute
  int m, n, k, batch;
  int tiles_m, tiles_n;
  int whole;           // tiles of C with a block each; ...
  int splits, k_split; // ... parts of k that the others are split into, and the steps in each
  int mode;            // READ_C, ALPHA, BETA
  u32 forbidden;       // kinds of entries with which ...
  int unless;          // ... this kernel does not run (0), or only runs (1)
  int unit;            // 1
  int triangle;        // side of squares on the diagonal: only tiles that touch these or are above
};
enum { READ_C = 1, ALPHA = 2, BETA = 4 };

// Whether the entries found by a scan are for this kernel, or for the other one that was launched.
SR_FN bool is_called(const ProductParams& p) {
  return !p.flags || ((*p.flags & p.forbidden) != 0) == (p.unless != 0);
}

// What a block computes. The first `whole` tiles of C have a block each, all others `splits` blocks,
// each of which takes `k_split` steps of k.
struct Share {
  int tile, split;  // of C; -1 for all of k
  int k, depth;     // the first step, and how many

  SR_FN explicit Share(const ProductParams& p, int block = int(blockIdx.x))
      : tile(block), split(-1), k(0), depth(p.k) {
    if (tile < p.whole) return;
    split = (tile - p.whole) % p.splits;
    tile = p.whole + (tile - p.whole) / p.splits;
    k = split * p.k_split;
    depth = p.k - k < p.k_split ? p.k - k : p.k_split;
  }
};

// Where a tile of C lies: groups of tile rows, so that blocks at work together share rows and
// columns of A and B.
template <class Step, class Tile>
struct Place {
  i64 batch;
  int row, column;  // of C, the tile's first

  SR_FN Place(const ProductParams& p, int index) {
    constexpr int GROUP = 8;
    const int tiles = p.tiles_m * p.tiles_n, tile = index % tiles;
    const int first = tile / (GROUP * p.tiles_n) * GROUP;
    const int high = p.tiles_m - first < GROUP ? p.tiles_m - first : GROUP;
    const int within = tile % (GROUP * p.tiles_n);
    batch = index / tiles;
    row = (first + within % high) * Tile::BM;
    column = within / high * (Tile::BN * Step::COLUMNS);
  }
};

template <class A>
SR_FN typename A::Compute scalar(i64 raw) {
  using Compute = typename A::Compute;
  if constexpr (sizeof(Compute) == 8) return bits_as<Compute>(raw);
  else return bits_as<Compute>(u32(raw));
}

// What C gets for a value: (α ⊗ value) ⊕ (β ⊗ old).
template <class A>
struct Join {
  using Compute = typename A::Compute;
  Compute alpha, beta;
  int mode;
  u32* bad;

  template <class Params>  // of any kernel that has these four fields
  SR_FN explicit Join(const Params& p)
      : alpha(scalar<A>(p.alpha)), beta(scalar<A>(p.beta)), mode(p.mode), bad(p.bad) {}

  SR_FN typename A::Storage operator()(Compute value, const typename A::Storage& old) const {
    if (mode & ALPHA) value = A::scale(alpha, value);
    if (mode & READ_C) {
      Compute was = A::decode(old);
      if (mode & BETA) was = A::scale(beta, was);
      value = A::add(value, was);
    }
    if constexpr (A::CHECK) {
      if (!A::fits(value)) *bad = 1;
    }
    return A::encode(value);
  }
};

template <class Step, class Tile, bool WIDE>
struct Epilogue {
  using A = typename Step::Algebra;
  using Word = typename Step::Word;
  using Storage = typename A::Storage;
  static constexpr int TM = Tile::TM, TN = Tile::TN, VN = Tile::VN;
  // Elements of C side by side in a thread, and how many of them a 16-byte store takes.
  static constexpr int RUN = VN * Step::COLUMNS;
  static constexpr int MOST = 16 / int(sizeof(Storage));
  static constexpr int GROUP = !WIDE ? 1 : RUN < MOST ? RUN : MOST;

  SR_FN static void store(const ProductParams& p, const Word (&acc)[TM][TN], const Share& share,
                          const Place<Step, Tile>& at) {
    if (share.split >= 0) return keep(p, acc, share);
    const Join<A> join(p);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; j += VN) run(p, join, acc[i] + j, at, i, j);
  }

  // VN accumulators from [i][j] on.
  SR_FN static void run(const ProductParams& p, const Join<A>& join, const Word* acc,
                        const Place<Step, Tile>& at, int i, int j) {
    const int row = at.row + Tile::row(i);
    const int column = at.column + Tile::column(j) * Step::COLUMNS;
    if (row >= p.m) return;
    Storage* c = static_cast<Storage*>(p.c) + at.batch * p.c_batch + row * p.c_m;
#pragma unroll
    for (int e = 0; e < RUN; e += GROUP) {
      if (column + e >= p.n) continue;  // n is a multiple of GROUP where C is wide
      Storage* to = c + (column + e) * (WIDE ? 1 : p.c_n);
      using Group = Pack<Storage, GROUP>;
      Group group{};
      if (p.mode & READ_C) group = *reinterpret_cast<const Group*>(to);
#pragma unroll
      for (int g = 0; g < GROUP; ++g)
        group.x[g] = join(Step::out(acc[(e + g) / Step::COLUMNS], (e + g) % Step::COLUMNS),
                          group.x[g]);
      *reinterpret_cast<Group*>(to) = group;
    }
  }

  // This thread's words of a part of a sum over k, THREADS apart.
  SR_FN static Word* part(const ProductParams& p, int tile, int split) {
    const i64 index = i64(tile - p.whole) * p.splits + split;
    return static_cast<Word*>(p.parts) + index * (Tile::BM * Tile::BN) + threadIdx.x;
  }
  SR_FN static void keep(const ProductParams& p, const Word (&acc)[TM][TN], const Share& share) {
    Word* to = part(p, share.tile, share.split);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) to[(i * TN + j) * Tile::THREADS] = acc[i][j];
  }
};

// The tiles of C whose k was split, from their parts in order: a block for VN accumulators of each
// thread.
template <class Step, class Tile, bool WIDE>
struct JoinParts {
  using Store = Epilogue<Step, Tile, WIDE>;
  using Word = typename Step::Word;
  static constexpr int TN = Tile::TN, VN = Tile::VN, RUNS = Tile::TM * TN / VN;

  SR_FN static void run(const ProductParams& p) {
    if (!is_called(p)) return;
    const int tile = p.whole + int(blockIdx.x) / RUNS, first = int(blockIdx.x) % RUNS * VN;
    const Word* part = Store::part(p, tile, 0) + first * Tile::THREADS;
    Word sum[VN];  // [VN]
#pragma unroll
    for (int v = 0; v < VN; ++v) sum[v] = part[v * Tile::THREADS];
    for (int s = 1; s < p.splits; ++s) {
      part += Tile::BM * Tile::BN;
#pragma unroll
      for (int v = 0; v < VN; ++v) sum[v] = Step::join(sum[v], part[v * Tile::THREADS]);
    }
    const Join<typename Step::Algebra> join(p);
    const Place<Step, Tile> at(p, tile);
    Store::run(p, join, sum, at, first / TN, first % TN);
  }
};

// Which tile of k last improved each accumulator. Kept in `arg` until FindArg looks through it.
template <class Step, class Tile, bool ARG>
struct Marks {
  using Word = typename Step::Word;
  static constexpr int TM = Tile::TM, TN = Tile::TN;
  using At = Place<Step, Tile>;
  SR_FN void start(const ProductParams&, Word (&)[TM][TN], const At&) {}
  SR_FN void before(const Word (&)[TM][TN]) {}
  SR_FN void after(const Word (&)[TM][TN], int) {}
  SR_FN void store(const ProductParams&, const Word (&)[TM][TN], const At&) const {}
};
enum { UNCHANGED = -1, NOT_A_NUMBER = -2 };
template <class Step, class Tile>
struct Marks<Step, Tile, true> {
  using A = typename Step::Algebra;
  using Word = typename Step::Word;
  using At = Place<Step, Tile>;
  static constexpr int TM = Tile::TM, TN = Tile::TN;
  Word old[TM][TN];   // [TM][TN]
  int tile[TM][TN];   // [TM][TN]

  // Where C is joined, it counts as earlier than every k.
  SR_FN void start(const ProductParams& p, Word (&acc)[TM][TN], const At& at) {
    using Storage = typename A::Storage;
    const Storage* c = static_cast<const Storage*>(p.c) + at.batch * p.c_batch;
    const bool joined = p.mode & READ_C;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        const int row = at.row + Tile::row(i), column = at.column + Tile::column(j);
        tile[i][j] = joined ? UNCHANGED : 0;
        if (joined && row < p.m && column < p.n)
          acc[i][j] = A::decode(c[row * p.c_m + column * p.c_n]);
      }
  }
  SR_FN void before(const Word (&acc)[TM][TN]) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) old[i][j] = acc[i][j];
  }
  SR_FN void after(const Word (&acc)[TM][TN], int t) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j)
        if (A::better(acc[i][j], old[i][j])) tile[i][j] = t;
  }
  SR_FN void store(const ProductParams& p, const Word (&acc)[TM][TN], const At& at) const {
    int* arg = p.marks + at.batch * p.m * i64(p.n);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        const int row = at.row + Tile::row(i), column = at.column + Tile::column(j);
        // comparisons do not see a NaN, which may have come in any tile
        const bool nan = A::NAN && acc[i][j] != acc[i][j] && tile[i][j] != UNCHANGED;
        if (row < p.m && column < p.n)
          arg[row * i64(p.n) + column] = nan ? int(NOT_A_NUMBER) : tile[i][j];
      }
  }
};

// The k of each entry: in the tile of k that won, the first that gives the best value. A thread for
// each entry; the columns of a block stay in the cache while it goes down the rows. A_WIDE, B_WIDE:
// four steps of k lie side by side, aligned.
template <class Step, int BK, bool A_WIDE, bool B_WIDE>
struct FindArg {
  using A = typename Step::Algebra;
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int COLUMNS = 32, ROWS = 8;  // of a block of 256 threads

  SR_FN static void run(const ProductParams& p) {
    if (!is_called(p)) return;
    const i64 high = (p.m + ROWS - 1) / ROWS, wide = (p.n + COLUMNS - 1) / COLUMNS;
    const i64 batch = blockIdx.x / (high * wide), place = blockIdx.x % (high * wide);
    const int row = int(place % high) * ROWS + int(threadIdx.x) / COLUMNS;
    const int column = int(place / high) * COLUMNS + int(threadIdx.x) % COLUMNS;
    if (row >= p.m || column >= p.n) return;
    const int mark = p.marks[(batch * p.m + row) * p.n + column];
    if (mark == UNCHANGED) return;
    const Storage* a = static_cast<const Storage*>(p.a) + batch * p.a_batch + row * p.a_m;
    const Storage* b = static_cast<const Storage*>(p.b) + batch * p.b_batch + column * p.b_n;
    int k = mark == NOT_A_NUMBER ? first_nan(p, a, b) : best(p, a, b, mark * BK);
    if (p.gather) k = p.gather[k * p.gather_k + column * p.gather_n];
    p.arg[batch * p.arg_batch + row * p.arg_m + column * p.arg_n] = k;
  }

  SR_FN static int best(const ProductParams& p, const Storage* a, const Storage* b, int first) {
    constexpr int N = A_WIDE || B_WIDE ? 4 : 1;
    Compute value[BK];  // [BK]
#pragma unroll
    for (int q = 0; q < BK; q += N) {
      const int k = first + q < p.k ? first + q : first;  // the first again does not win
      Storage left[N], right[N];  // [N]
      steps<A_WIDE>(left, a, k, p.a_k);
      steps<B_WIDE>(right, b, k, p.b_k);
#pragma unroll
      for (int e = 0; e < N; ++e) value[q + e] = A::mul(A::decode(left[e]), A::decode(right[e]));
    }
    int found = 0;
    Compute most = value[0];
#pragma unroll
    for (int q = 1; q < BK; ++q)
      if (A::better(value[q], most)) {
        most = value[q];
        found = q;
      }
    return first + found;
  }
  // N steps from k on, all inside: where N is 4, p.k is a multiple of it.
  template <bool WIDE, int N>
  SR_FN static void steps(Storage (&x)[N], const Storage* from, int k, i64 step) {
    if constexpr (WIDE) {
      const auto group = *reinterpret_cast<const Pack<Storage, N>*>(from + k);
#pragma unroll
      for (int e = 0; e < N; ++e) x[e] = group.x[e];
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e) x[e] = from[(k + e) * step];
    }
  }
  SR_FN static int first_nan(const ProductParams& p, const Storage* a, const Storage* b) {
    int k = 0;
    for (; k + 1 < p.k; ++k) {
      const Compute value = A::mul(A::decode(a[k * p.a_k]), A::decode(b[k * p.b_k]));
      if (value != value) break;
    }
    return k;
  }
};

}  // namespace sr

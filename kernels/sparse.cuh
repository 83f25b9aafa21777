// Kernels: sparse and band matrices times dense ones, C <- (α ⊗ A ⊗ B) ⊕ (β ⊗ C). They are bound by
// reading A once, and the rows of B that its entries select. Entries that are not stored are zero
// (the annihilator of ⊗), and skipped.
//
//     CSR   CsrCuts     checks the row pointers, cuts the matrix into tiles of equal work
//           CsrRows     a vector, rows of like length: LANES threads for each row
//           Csr         anything else: a block for each tile
//           CsrReduce   rows that span several tiles
//     DIA   Dia         stored diagonals: a group of threads for each row
//
// Nothing in an operand is trusted: an index that is no column, or row pointers that are none, set
// a flag and lead to no access outside of the operands.
#pragma once
#include "epilogue.cuh"

namespace sr {

// The parameters of a launch; the same fields in the same order in semiring_mm/gpu/sparse.py.
// Strides count elements; B's columns are adjacent.
struct SparseParams {
  const void* data;     // [entries], or [diagonals][slots]
  const void* indices;  // [entries]: columns
  const void* ends;     // [m + 1]: row i has the entries from ends[i] to ends[i + 1]
  const void* offsets;  // [diagonals]: columns minus rows
  const void* b;
  void* c;
  i64* cuts;            // [tiles + 1]: rows that end before each tile
  void* heads;          // [tiles][n] of Compute: partial results, of a row that began before it
  void* tails;          // [tiles][n] of Compute: partial results, of a row that ends after it
  u32* errors;             // [4]: set to 1 where a result does not fit, ...
  i64 m, k, n;
  i64 entries;          // room for entries; slots of a diagonal
  i64 data_d, b_k, c_m, c_n;
  i64 alpha, beta, zero;  // the low bytes are a Compute
  int tiles, strips;    // strips of columns
  int diagonals, trans; // trans: slots are counted along rows of op(A), not columns
  int mode;             // READ_C, BETA
};
// ... an index is not a column, `ends` are not row pointers, a row is too long for CsrRows.
enum { DOES_NOT_FIT, NO_COLUMN, NO_ROWS, LONG_ROW };

// The work of a block: LANES threads lie along the columns of B, each with the V columns that it
// reads at once; GROUPS such groups have rows of their own.
//
// SCALED: α scales the entries of A. JOIN: zero is not the identity of ⊕, so that it counts where
// an entry is absent.
template <class A, int LANES, bool VECTOR, bool SCALED, bool JOIN>
struct Along {
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  using Piece = Chunk<Storage, VECTOR>;
  static constexpr int THREADS = 256, GROUPS = THREADS / LANES, V = Piece::V, COLUMNS = LANES * V;

  SR_FN static int group() { return int(threadIdx.x) / LANES; }
  SR_FN static int slot() { return int(threadIdx.x) % LANES * V; }
  SR_FN static i64 column(const SparseParams& p) {
    return i64(blockIdx.x % u32(p.strips)) * COLUMNS + slot();
  }
  SR_FN static const Storage* columns_of_b(const SparseParams& p) {
    const i64 at = column(p);  // columns beyond the edge are clamped to the first, and dropped
    return static_cast<const Storage*>(p.b) + (at < p.n ? at : 0);
  }

  // From a row of B to the next; a vector is contiguous.
  SR_FN static i64 row_of_b(const SparseParams& p) { return COLUMNS == 1 ? 1 : p.b_k; }

  // α ⊗ an entry: right whether or not ⊗ distributes or commutes.
  SR_FN static Compute entry(const SparseParams& p, Storage x) {
    if constexpr (SCALED) return A::scale(scalar<A>(p.alpha), A::decode(x));
    else return A::decode(x);
  }
  SR_FN static void clear(Compute (&acc)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) acc[v] = A::start();
  }
  SR_FN static void fold(Compute (&acc)[V], Compute left, const Piece& right) {
#pragma unroll
    for (int v = 0; v < V; ++v) acc[v] = A::fold(acc[v], left, A::decode(right[v]));
  }
  // The result of a broken matrix: NaN, if the type has one.
  SR_FN static Compute nothing() {
    if constexpr (Is<Compute>::floating) return Compute(bits_as<float>(0x7fc00000u));
    else return A::start();
  }

  // Store row i of C, from the sum over its `stored` entries.
  SR_FN static void finish(const SparseParams& p, i64 row, const Compute (&acc)[V], i64 stored) {
    const i64 at = column(p);
    if (at >= p.n) return;
    Storage* to = static_cast<Storage*>(p.c) + row * p.c_m + at * (VECTOR ? 1 : p.c_n);
    using Group = Pack<Storage, V>;
    Group group{};
    if (p.mode & READ_C) group = *reinterpret_cast<const Group*>(to);
    const LinearCombination<A> combine(p);
#pragma unroll
    for (int v = 0; v < V; ++v) group.x[v] = combine(whole(p, acc[v], stored), group.x[v]);
    *reinterpret_cast<Group*>(to) = group;
  }
  // A row's sum, with the zero of its absent entries.
  SR_FN static Compute whole(const SparseParams& p, Compute value, i64 stored) {
    if constexpr (JOIN)
      if (stored < p.k || p.k == 0) value = A::add(value, scalar<A>(p.zero));
    return value;
  }
};

template <class Index>
SR_FN const Index* row_ends(const SparseParams& p) { return static_cast<const Index*>(p.ends); }

// Whether CsrRows computes this product; else Csr does.
SR_FN bool by_rows(const SparseParams& p) { return !p.errors[LONG_ROW] && !p.errors[NO_ROWS]; }

template <class Index>
SR_FN bool is_column(const SparseParams& p, Index j) {
  if (u64(i64(j)) < u64(p.k)) return true;
  p.errors[NO_COLUMN] = 1;
  return false;
}

// Merge path (Merrill and Garland, 2016): walk through the matrix row by row, with a step for each
// entry and a step for each end of a row. Tiles are pieces of this path of equal length, so that
// blocks have equal work, however long the rows are. This is the number of rows that end within the
// first `steps` steps; ends[i] is the number of entries up to the end of row i.
//
//     rows of 4, 0 and 2 entries:   x x x | x E E | x x E      E: end of a row; tiles of 3 steps
//     rows_before each tile:        0       0       2      3
template <class Int, class Index>
SR_FN Int rows_before(const Index* ends, Int rows, Int entries, Int steps) {
  Int low = steps > entries ? steps - entries : 0, high = steps < rows ? steps : rows;
  while (low < high) {
    const Int middle = (low + high) / 2;
    if (ends[middle] <= steps - middle - 1) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Kernel: where tiles begin. Checks that row pointers ascend from 0 to the number of entries, which
// the kernels after it rely on, and whether a row has more than LONGEST entries (if LONGEST is not
// 0).
template <class Index, int TILE, int LONGEST>
struct CsrCuts {
  SR_FN static void run(const SparseParams& p) {
    const Index* ends = row_ends<Index>(p);
    const i64 first = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 step = i64(gridDim.x) * blockDim.x;
    const i64 last = ends[p.m], entries = last < 0 ? 0 : last < p.entries ? last : p.entries;
    if (first == 0 && (ends[0] != 0 || last != entries)) p.errors[NO_ROWS] = 1;
    for (i64 i = first; i < p.m; i += step) {
      const i64 length = i64(ends[i + 1]) - i64(ends[i]);
      if (length < 0) p.errors[NO_ROWS] = 1;
      if (LONGEST > 0 && length > LONGEST) p.errors[LONG_ROW] = 1;
    }
    for (i64 t = first; t <= p.tiles; t += step) {
      const i64 steps = t * TILE, all = p.m + entries;
      p.cuts[t] = rows_before(ends + 1, p.m, entries, steps < all ? steps : all);
    }
  }
};

// Kernel: a matrix times a vector, where rows are of like length. LANES threads for each row read
// EACH entries at a time; entries of the next row are in flight while a row is multiplied. A block
// has every gridDim.x-th group of rows.
template <class A, class Index, int LANES, int EACH, bool SCALED, bool JOIN>
struct CsrRows {
  using At = Along<A, 1, false, SCALED, JOIN>;
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int ROWS = At::THREADS / LANES;  // of a block
  static_assert(LANES <= 32, "lanes of a row are joined within a warp");

  struct Row {
    i64 from, to;  // its entries
    SR_FN Row(const SparseParams& p, i64 row) : from(0), to(0) {
      if (row < p.m) {
        from = row_ends<Index>(p)[row];
        to = row_ends<Index>(p)[row + 1];
      }
    }
  };
  struct Entries {
    Index j[EACH];       // [EACH]: columns
    Storage left[EACH];  // [EACH]
    SR_FN void load(const SparseParams& p, i64 from, i64 to) {
#pragma unroll
      for (int s = 0; s < EACH; ++s)
        if (from + s * LANES < to) {
          j[s] = static_cast<const Index*>(p.indices)[from + s * LANES];
          left[s] = static_cast<const Storage*>(p.data)[from + s * LANES];
        }
    }
    SR_FN Compute times(const SparseParams& p, Compute sum, i64 from, i64 to) const {
      Storage right[EACH];  // [EACH]: the entries of B that they meet
      bool inside[EACH];    // [EACH]
#pragma unroll
      for (int s = 0; s < EACH; ++s) {
        inside[s] = from + s * LANES < to && is_column(p, j[s]);
        if (inside[s]) right[s] = static_cast<const Storage*>(p.b)[j[s]];
      }
      compiler_fence();
#pragma unroll
      for (int s = 0; s < EACH; ++s) {
        if (inside[s]) sum = A::add(sum, A::mul(At::entry(p, left[s]), A::decode(right[s])));
        else if (from + s * LANES < to) sum = A::add(sum, At::nothing());
      }
      return sum;
    }
  };

  SR_FN static void run(const SparseParams& p) {
    if (!by_rows(p)) return;
    const int lane = int(threadIdx.x) % LANES;
    const i64 step = i64(gridDim.x) * ROWS;
    i64 row = i64(blockIdx.x) * ROWS + int(threadIdx.x) / LANES;
    // software pipeline: bounds are loaded two rows ahead, entries one row ahead
    Row now(p, row), next(p, row + step);
    Entries entries;
    entries.load(p, now.from + lane, now.to);
    for (i64 first = i64(blockIdx.x) * ROWS; first < p.m; first += step, row += step) {
      const Row later(p, row + 2 * step);
      Entries following;
      following.load(p, next.from + lane, next.to);
      compiler_fence();
      Compute acc[1] = {entries.times(p, A::start(), now.from + lane, now.to)};
      for (i64 e = now.from + lane + LANES * EACH; e < now.to; e += LANES * EACH) {  // rare
        entries.load(p, e, now.to);
        acc[0] = entries.times(p, acc[0], e, now.to);
      }
#pragma unroll
      for (int half = LANES / 2; half > 0; half /= 2)
        acc[0] = A::add(acc[0], shuffle_xor(acc[0], half));
      if (lane == 0 && row < p.m) At::finish(p, row, acc, now.to - now.from);
      entries = following;
      now = next;
      next = later;
    }
  }
};

// Kernel: a block for each tile of the path and strip of columns; a group has ITEMS steps of the
// path. Rows that end within a group are stored; the rest is joined by a segmented scan over the
// groups. STAGED (B is a vector, a thread is a group): all entries are multiplied first, by
// consecutive threads, and the products kept in shared memory. ROWS: CsrRows was launched, too, and
// computes the product if no row is long.
template <class A, class Index, int LANES, bool VECTOR, int ITEMS, bool SCALED, bool JOIN,
          bool ROWS>
struct Csr {
  using At = Along<A, LANES, VECTOR, SCALED, JOIN>;
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  using Piece = typename At::Piece;
  static constexpr int V = At::V, GROUPS = At::GROUPS, COLUMNS = At::COLUMNS;
  static constexpr int THREADS = At::THREADS, TILE = GROUPS * ITEMS;
  static constexpr bool STAGED = COLUMNS == 1;
  static constexpr int PRODUCTS = STAGED ? TILE + TILE / 32 : 0;
  // Every 33rd place of the products stays empty, so that strides of 8 or 32 have no bank
  // conflicts.
  SR_FN static int padded(int e) { return e + e / 32; }

  SR_FN static void run(const SparseParams& p) {
    if (ROWS && by_rows(p)) return;
    // --- which steps of the path, rows and entries this tile has
    const i64 tile = blockIdx.x / u32(p.strips);
    const Index* ends = row_ends<Index>(p);
    const i64 begin = tile * TILE, all = p.m + ends[p.m];
    const i64 row0 = p.cuts[tile], row1 = p.cuts[tile + 1];
    if (p.errors[NO_ROWS]) return spoil(p, tile);
    if (begin >= all) return;
    const i64 end = begin + TILE < all ? begin + TILE : all, entry0 = begin - row0;
    const int rows = int(row1 - row0), entries = int(end - begin) - rows;

    Compute* scan = shared_memory<Compute>();        // [2][GROUPS][COLUMNS]
    Compute* products = scan + 2 * GROUPS * COLUMNS;  // [PRODUCTS]
    int* stops = reinterpret_cast<int*>(products + PRODUCTS);  // [TILE]: entries before rows end
    int* marks = stops + TILE;                                 // [2][GROUPS]
    if (threadIdx.x == 0) marks[0] = 0;
    for (int i = int(threadIdx.x); i < rows; i += THREADS)
      stops[i] = int(ends[row0 + i + 1] - entry0);
    if constexpr (STAGED) multiply(p, products, entry0, entries);
    __syncthreads();  // between storing stops and products and reading them
    if constexpr (STAGED) {
      int lanes = 1;  // for each row, so that all threads have one
      while (lanes < 32 && 2 * lanes * (rows + 1) <= THREADS) lanes *= 2;
      for (int i = int(threadIdx.x); i <= rows; i += THREADS)
        if (length(stops, rows, entries, i) > LONG * lanes) marks[0] = 1;
      __syncthreads();  // between marking long rows and reading the mark
      if (!marks[0])
        return short_rows(p, tile, row0, entry0, rows, entries, lanes, products, stops, scan);
    }

    // --- this group's steps of the path: fold entries, close rows
    const int steps = At::group() * ITEMS, most = rows + entries;
    const int from = steps < most ? steps : most;
    int row = rows_before(stops, rows, entries, from), e = from - row, first = -1;
    Compute acc[V], head[V];  // of the open row; of the first row that ends here
    At::clear(acc);
    At::clear(head);
    const auto close = [&] {
      if (first < 0) {  // it may have begun in another group: kept until that is joined
        first = row;
#pragma unroll
        for (int v = 0; v < V; ++v) head[v] = acc[v];
      } else {
        const i64 i = row0 + row;
        At::finish(p, i, acc, ends[i + 1] - ends[i]);
      }
      At::clear(acc);
      ++row;
    };
    if constexpr (STAGED) {
#pragma unroll
      for (int s = 0; s < ITEMS; ++s)
        if (from + s < most) {
          if (row < rows && stops[row] <= e) close();
          else acc[0] = A::add(acc[0], products[padded(e++)]);
        }
    } else {
      const int to = from + ITEMS < most ? from + ITEMS : most;
      const int last = rows_before(stops, rows, entries, to);
      for (; row < last; close()) take(p, acc, entry0, e, stops[row]);
      take(p, acc, entry0, e, to - last);
    }

    // --- what the groups before left open: a scan that begins anew where a row ended
    if constexpr (STAGED) __syncthreads();  // between reading the mark of long rows and reusing it
    int buffer = 0, mark = first >= 0;  // mark: whether a row ends in the groups joined so far
    const auto keep = [&] {
#pragma unroll
      for (int v = 0; v < V; ++v) at(scan, buffer, At::group())[v] = acc[v];
      if (At::slot() == 0) marks[buffer * GROUPS + At::group()] = mark;
      __syncthreads();  // between storing a step of the scan and reading it
    };
    keep();
#pragma unroll 1
    for (int step = 1; step < GROUPS; step *= 2) {
      if (!mark && At::group() >= step) {
        mark = marks[buffer * GROUPS + At::group() - step];
#pragma unroll
        for (int v = 0; v < V; ++v)
          acc[v] = A::add(at(scan, buffer, At::group() - step)[v], acc[v]);
      }
      buffer ^= 1;
      keep();
    }
    // --- the last group has what the tile leaves open; a group's first row gets what came before
    const i64 column = At::column(p);
    if (At::group() == GROUPS - 1) put(p, p.tails, tile, column, acc);
    if (first < 0) return;
    if (At::group() > 0) {
#pragma unroll
      for (int v = 0; v < V; ++v) head[v] = A::add(at(scan, buffer, At::group() - 1)[v], head[v]);
    }
    close_row(p, tile, row0, entry0, first, head);
  }

  // Row `row` of a tile, which ends in it: to C, or to the tile's head if it began before.
  SR_FN static void close_row(const SparseParams& p, i64 tile, i64 row0, i64 entry0, int row,
                              const Compute (&acc)[V]) {
    const Index* ends = row_ends<Index>(p);
    const i64 i = row0 + row, from = ends[i];
    if (row == 0 && from < entry0) put(p, p.heads, tile, At::column(p), acc);  // began before
    else At::finish(p, i, acc, ends[i + 1] - from);
  }

  // A tile of short rows, and the part of the row that it leaves open: `lanes` threads for each.
  static constexpr int LONG = 32;  // products that a thread adds up, at most
  SR_FN static int start(const int* stops, int i) { return i ? stops[i - 1] : 0; }
  SR_FN static int length(const int* stops, int rows, int entries, int i) {
    return (i < rows ? stops[i] : entries) - start(stops, i);
  }
  SR_FN static void short_rows(const SparseParams& p, i64 tile, i64 row0, i64 entry0, int rows,
                               int entries, int lanes, const Compute* products, const int* stops,
                               Compute* scan) {
    const int lane = int(threadIdx.x) & (lanes - 1);
    Compute* shared = scan + threadIdx.x;  // [THREADS]
    for (int first = 0; first <= rows; first += THREADS / lanes) {  // whole warps
      const int i = first + int(threadIdx.x) / lanes;
      Compute sum[V];
      At::clear(sum);
      if (i <= rows) {
        const int from = start(stops, i), to = from + length(stops, rows, entries, i);
#pragma unroll 4
        for (int e = from + lane; e < to; e += lanes) sum[0] = A::add(sum[0], products[padded(e)]);
      }
      for (int half = lanes / 2; half > 0; half /= 2) {
        *shared = sum[0];
        __syncwarp();  // between storing sums and reading them (`lanes` divides a warp)
        if (lane < half) sum[0] = A::add(sum[0], shared[half]);
        __syncwarp();  // between reading sums and overwriting them
      }
      if (lane > 0 || i > rows) continue;
      if (i == rows) put(p, p.tails, tile, 0, sum);
      else close_row(p, tile, row0, entry0, i, sum);
    }
  }

  SR_FN static Compute* at(Compute* scan, int buffer, int group) {
    return scan + (buffer * GROUPS + group) * COLUMNS + At::slot();
  }
  SR_FN static void put(const SparseParams& p, void* parts, i64 tile, i64 column,
                        const Compute (&acc)[V]) {
    Compute* to = static_cast<Compute*>(parts) + tile * p.n + column;
    for (int v = 0; v < V; ++v)
      if (column + v < p.n) to[v] = acc[v];
  }

  // STAGED: the tile's entries times the entries of the vector; all loads of a kind are in flight
  // at once.
  SR_FN static void multiply(const SparseParams& p, Compute* products, i64 entry0, int entries) {
    const Index* indices = static_cast<const Index*>(p.indices) + entry0;
    const Storage* data = static_cast<const Storage*>(p.data) + entry0;
    const Storage* b = static_cast<const Storage*>(p.b);
    Index j[ITEMS];                     // [ITEMS]
    Storage left[ITEMS], right[ITEMS];  // [ITEMS]
    bool inside[ITEMS];                 // [ITEMS]
#pragma unroll
    for (int s = 0; s < ITEMS; ++s) {
      const int e = s * THREADS + int(threadIdx.x);
      if (e < entries) {
        j[s] = indices[e];
        left[s] = data[e];
      }
    }
    compiler_fence();
#pragma unroll
    for (int s = 0; s < ITEMS; ++s) {
      inside[s] = s * THREADS + int(threadIdx.x) < entries && is_column(p, j[s]);
      if (inside[s]) right[s] = b[j[s]];
    }
    compiler_fence();
#pragma unroll
    for (int s = 0; s < ITEMS; ++s) {
      const int e = s * THREADS + int(threadIdx.x);
      if (e < entries)
        products[padded(e)] = inside[s] ? A::mul(At::entry(p, left[s]), A::decode(right[s]))
                                        : At::nothing();
    }
  }

  // Fold the entries from e to `until` of one row, times this thread's columns of B.
  SR_FN static void take(const SparseParams& p, Compute (&acc)[V], i64 entry0, int& e, int until) {
    constexpr int N = 4;
    for (; e + N <= until; e += N) fold_entries<N>(p, acc, entry0 + e);
    for (; e < until; ++e) fold_entries<1>(p, acc, entry0 + e);
  }
  template <int N>
  SR_FN static void fold_entries(const SparseParams& p, Compute (&acc)[V], i64 from) {
    const Index* indices = static_cast<const Index*>(p.indices) + from;
    const Storage* data = static_cast<const Storage*>(p.data) + from;
    const Storage* b = At::columns_of_b(p);
    Storage left[N];  // [N]
    Piece right[N];   // [N], of V columns each
    bool inside[N];   // [N]
#pragma unroll
    for (int s = 0; s < N; ++s) {
      const Index j = indices[s];
      left[s] = data[s];
      inside[s] = is_column(p, j);
      if (inside[s]) right[s].load(b + i64(j) * At::row_of_b(p));
    }
    compiler_fence();
#pragma unroll
    for (int s = 0; s < N; ++s) {
      if (inside[s]) {
        At::fold(acc, At::entry(p, left[s]), right[s]);
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v) acc[v] = A::add(acc[v], At::nothing());
      }
    }
  }

  // Row pointers are none: every row of C is `nothing`.
  SR_FN static void spoil(const SparseParams& p, i64 tile) {
    Compute acc[V];
#pragma unroll
    for (int v = 0; v < V; ++v) acc[v] = At::nothing();
    for (i64 row = tile * GROUPS + At::group(); row < p.m; row += i64(p.tiles) * GROUPS)
      At::finish(p, row, acc, p.k);
  }
};

// Kernel: rows that end in another tile than they began in. A warp for each tile, LANES of it along
// the columns; its PARTS share the tiles in between, and are joined in a fixed order.
template <class A, class Index, int LANES, int TILE, bool JOIN, bool ROWS>
struct CsrReduce {
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;

  SR_FN static void run(const SparseParams& p) {
    constexpr int PARTS = 32 / LANES;
    const i64 tile = i64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (tile >= p.tiles || p.errors[NO_ROWS] || (ROWS && by_rows(p))) return;
    const Index* ends = row_ends<Index>(p);
    const i64 row = p.cuts[tile];
    if (row == p.cuts[tile + 1]) return;  // no row ends here
    const i64 stored = ends[row + 1] - ends[row], first = (row + ends[row]) / TILE;
    if (first == tile) return;  // it began in this tile, which stored it
    const int lane = int(threadIdx.x) % LANES, part = int(threadIdx.x) % 32 / LANES;
    const LinearCombination<A> combine(p);
    for (i64 begin = 0; begin < p.n; begin += LANES) {
      const i64 column = begin + lane;
      Compute sum = A::start();
      if (column < p.n) {
        const Compute* tails = static_cast<const Compute*>(p.tails) + column;
#pragma unroll 8
        for (i64 t = first + part; t < tile; t += PARTS) sum = A::add(sum, tails[t * p.n]);
      }
      Compute* shared = shared_memory<Compute>() + threadIdx.x;  // [warps][PARTS][LANES]
      *shared = sum;
      for (int half = PARTS / 2; half > 0; half /= 2) {
        __syncwarp();  // between storing 2 * half sums and reading them
        if (part < half) *shared = sum = A::add(sum, shared[half * LANES]);
      }
      __syncwarp();  // between reading the sums and storing those of the next columns
      if (part > 0 || column >= p.n) continue;
      sum = A::add(sum, static_cast<const Compute*>(p.heads)[tile * p.n + column]);
      sum = Along<A, 1, false, false, JOIN>::whole(p, sum, stored);
      Storage* c = static_cast<Storage*>(p.c) + row * p.c_m + column * p.c_n;
      *c = combine(sum, p.mode & READ_C ? *c : Storage{});
    }
  }
};

SR_FN u32 unsigned_of(i32 x) { return u32(x); }
SR_FN u64 unsigned_of(i64 x) { return u64(x); }

// Kernel: a matrix stored by diagonals. Entry (i, j) of op(A) lies in the diagonal of offset j - i,
// in slot j (or i, if op transposes). A group for each row; neighbouring groups read neighbouring
// slots.
template <class A, class Index, int LANES, bool VECTOR, bool SCALED, bool JOIN>
struct Dia {
  using At = Along<A, LANES, VECTOR, SCALED, JOIN>;
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int V = At::V;

  SR_FN static void run(const SparseParams& p) {
    const i64 row = i64(blockIdx.x / u32(p.strips)) * At::GROUPS + At::group();
    if (row >= p.m) return;
    Compute acc[V];
    At::clear(acc);
    int d = 0;
    i64 stored = 0;
    for (; d + 8 <= p.diagonals; d += 8) take<8>(p, acc, row, d, stored);
    for (; d < p.diagonals; ++d) take<1>(p, acc, row, d, stored);
    At::finish(p, row, acc, stored);
  }

  template <int N>
  SR_FN static void take(const SparseParams& p, Compute (&acc)[V], i64 row, int d, i64& stored) {
    // positions are unsigned numbers of the offsets' type: one that wraps around is outside, too
    using Size = decltype(unsigned_of(Index{}));
    const Index* offsets = static_cast<const Index*>(p.offsets) + d;
    const Storage* b = At::columns_of_b(p);
    Storage left[N];              // [N]
    typename At::Piece right[N];  // [N], of V columns each
    bool inside[N];               // [N]
#pragma unroll
    for (int s = 0; s < N; ++s) {
      const Size from = Size(offsets[s]), j = p.trans ? Size(row) - from : Size(row) + from;
      const Size slot = p.trans ? Size(row) : j;
      inside[s] = j < Size(p.k) && slot < Size(p.entries);
      if (inside[s]) {
        left[s] = static_cast<const Storage*>(p.data)[(d + s) * p.data_d + i64(slot)];
        right[s].load(b + i64(j) * At::row_of_b(p));
      }
    }
    compiler_fence();
#pragma unroll
    for (int s = 0; s < N; ++s)
      if (inside[s]) {
        At::fold(acc, At::entry(p, left[s]), right[s]);
        ++stored;
      }
  }
};

}  // namespace sr

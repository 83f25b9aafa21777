// Kernels: sparse and band matrices times dense ones, C <- (α ⊗ A ⊗ B) ⊕ (β ⊗ C). They are bound by
// reading A once, and the rows of B that its entries select. Entries that are not stored are zero
// (the annihilator of ⊗), and skipped.
//
//     CSR   CsrRows     times a vector, rows of like length: LANES threads for each row
//           CsrVector   any rows: a warp for each of some pieces of equal work
//           CsrPieces   finds such pieces for a matrix
//           Csr         times a matrix: a block for each piece, threads along the columns
//           CsrReduce   rows that span several pieces
//     DIA   Dia         stored diagonals: a group of threads for each row
//
// Nothing in an operand is trusted: an index that is no column, or row pointers that do not ascend,
// set a flag and lead to no access outside of the operands.
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
  i64* rows;            // [pieces + 1]: rows that end before each piece
  void* heads;          // [pieces][n] of Compute: partial results, of a row that began before it
  void* tails;          // [pieces][n] of Compute: partial results, of a row that ends after it
  u32* errors;          // [3]: set to 1 where a result does not fit, ...
  i64 m, k, n;
  i64 entries;          // room for entries; slots of a diagonal
  i64 data_d, b_k, c_m, c_n;
  i64 alpha, beta, zero;  // the low bytes are a Compute
  i64 steps;            // of a piece
  i64 longest;          // a row of more entries than this may be shared by pieces
  int pieces, strips;   // strips of columns
  int diagonals, trans; // trans: slots are counted along rows of op(A), not columns
  int mode;             // READ_C, BETA
};
// ... an index is not a column, `ends` are not row pointers.
enum { DOES_NOT_FIT, NO_COLUMN, NO_ROWS };

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

SR_FN void mark(const SparseParams& p, int error) { p.errors[error] = 1; }
template <class Index>
SR_FN bool is_column(const SparseParams& p, Index j) {
  if (u64(i64(j)) < u64(p.k)) return true;
  mark(p, NO_COLUMN);
  return false;
}

SR_FN u32 unsigned_of(i32 x) { return u32(x); }
SR_FN u64 unsigned_of(i64 x) { return u64(x); }

// Merge path (Merrill and Garland, 2016): walk through the matrix row by row, with a step for each
// entry and a step for each end of a row. Pieces of this path have equal length, so that warps or
// blocks have equal work, however long the rows are. This is the number of rows that end within the
// first `steps` steps; ends[i] is the number of entries up to the end of row i.
//
//     rows of 4, 0 and 2 entries:   x x x | x E E | x x E      E: end of a row; pieces of 3 steps
//     rows_before each piece:       0       0       2      3
SR_FN int rows_before(const int* ends, int rows, int entries, int steps) {
  int low = steps > entries ? steps - entries : 0, high = steps < rows ? steps : rows;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (ends[middle] <= steps - middle - 1) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The rows that end before a piece and before the next one, found by a warp: each half of it looks
// at 16 rows at once, first about where the end would be if all rows were alike.
template <class Index>
struct CsrPiece {
  i64 begin, end;  // steps
  i64 row0, row1;
  i64 count;       // entries of the matrix

  SR_FN CsrPiece(const SparseParams& p, i64 piece) {
    const i64 all = p.m + p.entries, last = row_ends<Index>(p)[p.m];
    count = last < 0 ? 0 : last < p.entries ? last : p.entries;
    begin = piece * p.steps < all ? piece * p.steps : all;
    end = begin + p.steps < all ? begin + p.steps : all;
    const int lane = int(threadIdx.x) % 32;
    const i64 found = search(p, lane < 16 ? begin : end, all);
    row0 = shuffle(found, 0);
    row1 = shuffle(found, 16);
    if (lane) return;
    p.rows[piece] = row0;  // for CsrReduce
    if (piece + 1 == p.pieces) p.rows[p.pieces] = p.m;
  }

 private:
  SR_FN static i64 search(const SparseParams& p, i64 steps, i64 all) {
    const Index* ends = row_ends<Index>(p);
    const int lane = int(threadIdx.x) % 16, half = int(threadIdx.x) & 16;
    i64 low = steps > p.entries ? steps - p.entries : 0, high = steps < p.m ? steps : p.m;
    const i64 guess = i64(double(steps) * double(p.m) / double(all ? all : 1));
    i64 at = lane < 8 ? guess - (1 << 2 * (7 - lane)) : guess + (1 << 2 * (lane - 8)) - 1;
    at = at < low ? low : at < high ? at : high - 1;
    while (ballot(low < high)) {
      const bool before = low < high && i64(ends[at + 1]) + at + 1 <= steps;
      const u32 after = ~(ballot(before) >> half) & 0xffffu;
      const int count = after ? bit_length(after & (0u - after)) - 1 : 16;
      const i64 below = shuffle(at, half + (count ? count - 1 : 0));
      const i64 above = shuffle(at, half + (count < 16 ? count : 15));
      if (count > 0 && low < high) low = below + 1;
      if (count < 16 && above < high) high = above < low ? low : above;
      at = low + (high - low) * (lane + 1) / 17;
    }
    return low;
  }
};

// Kernel: where pieces begin, for Csr.
template <class Index>
struct CsrPieces {
  SR_FN static void run(const SparseParams& p) {
    const i64 own = i64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (own < p.pieces) CsrPiece<Index>(p, own);
  }
};

// Kernel: times a vector, where no row has more than LANES * EACH entries (or few do). LANES threads
// for each row read EACH entries at a time; entries of the next row are in flight while a row is
// multiplied. A block has every gridDim.x-th group of rows.
template <class A, class Index, int LANES, int EACH, bool SCALED, bool JOIN>
struct CsrRows {
  using At = Along<A, 1, false, SCALED, JOIN>;
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int ROWS = At::THREADS / LANES;  // of a block
  static_assert(LANES <= 32, "lanes of a row are joined within a warp");

  struct Row {
    Index from, to;  // its entries; -1 where row pointers do not ascend
    SR_FN Row(const SparseParams& p, i64 row) : from(0), to(0) {
      if (row < p.m) {
        from = row_ends<Index>(p)[row];
        to = row_ends<Index>(p)[row + 1];
        if (from < 0 || from > to || i64(to) > p.entries) from = to = -1;
      }
    }
  };
  struct Entries {
    Index j[EACH];       // [EACH]: columns
    Storage left[EACH];  // [EACH]
    SR_FN void load(const SparseParams& p, Index from, Index to) {
#pragma unroll
      for (int s = 0; s < EACH; ++s)
        if (from + s * LANES < to) {
          j[s] = static_cast<const Index*>(p.indices)[from + s * LANES];
          left[s] = static_cast<const Storage*>(p.data)[from + s * LANES];
        }
    }
    SR_FN Compute times(const SparseParams& p, Compute sum, Index from, Index to) const {
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
      for (Index e = now.from + lane + LANES * EACH; e < now.to; e += LANES * EACH) {  // rare
        entries.load(p, e, now.to);
        acc[0] = entries.times(p, acc[0], e, now.to);
      }
#pragma unroll
      for (int half = LANES / 2; half > 0; half /= 2)
        acc[0] = A::add(acc[0], shuffle_xor(acc[0], half));
      if (lane == 0 && row < p.m) {
        if (now.from < 0) {
          mark(p, NO_ROWS);
          acc[0] = At::nothing();
        }
        At::finish(p, row, acc, now.to - now.from);
      }
      entries = following;
      now = next;
      next = later;
    }
  }
};

// Kernel: times a vector. A warp for each piece; it goes along it by chunks, of which the next
// one's entries are under way while products of this one's are made, kept in shared memory and added
// up by some threads for each row that ends. A row that spans pieces is computed by the warp where it
// ends; but of one of more than p.longest entries each piece adds up its own part.
template <class A, class Index, int ITEMS, bool SCALED, bool JOIN>
struct CsrVector {
  using At = Along<A, 1, false, SCALED, JOIN>;
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int THREADS = At::THREADS, CHUNK = 32 * ITEMS;
  static constexpr int PRODUCTS = CHUNK + CHUNK / 32;  // room for those of a warp
  static constexpr int LONG = 16;  // products that a thread adds up, at most
  static constexpr i64 MOST = 0x7fff0000;  // rows of a piece; it has more only if they are broken
  // Every 33rd place of the products stays empty, so that strides of 8 or 32 have no bank
  // conflicts.
  SR_FN static int padded(int e) { return e + e / 32; }

  // Entries of a chunk, one in 32.
  struct Entries {
    Index j[ITEMS];       // [ITEMS]: columns
    Storage left[ITEMS];  // [ITEMS]
    SR_FN void load(const Index* indices, const Storage* data, int from, int to) {
#pragma unroll
      for (int s = 0; s < ITEMS; ++s) {
        const int e = from + s * 32 + int(threadIdx.x) % 32;
        if (e < to) {
          j[s] = indices[e];
          left[s] = data[e];
        }
      }
    }
  };

  SR_FN static void run(const SparseParams& p) {
    const i64 own = i64(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
    if (own >= p.pieces) return;
    const int lane = int(threadIdx.x) % 32;
    const CsrPiece<Index> piece(p, own);
    const Index* ends = row_ends<Index>(p);
    // --- the first row: from its beginning, if it is not shared
    const i64 first = ends[piece.row0];
    i64 base = piece.begin - piece.row0;  // the first entry
    bool sound = 0 <= first && first <= base;  // whether row pointers ascend up to here
    const bool head = sound && first < base && piece.row0 < p.m &&
                      ends[piece.row0 + 1] - first > p.longest;
    if (sound && !head) base = first;
    // --- the row that is open at the end: only if it is shared
    const i64 most = piece.end - piece.row1 < piece.count ? piece.end - piece.row1 : piece.count;
    const i64 last = ends[piece.row1];
    const bool tail = piece.row1 < p.m && (piece.row1 > piece.row0 || sound) && last <= most &&
                      ends[piece.row1 + 1] - last > p.longest;
    const i64 stop = tail ? most : piece.row1 == piece.row0 ? base : last < most ? last : most;
    const int size = stop > base ? int(stop - base) : 0;  // entries
    const Index* indices = static_cast<const Index*>(p.indices) + base;
    const Storage* data = static_cast<const Storage*>(p.data) + base;
    const Storage* b = static_cast<const Storage*>(p.b);
    Compute* products = shared_memory<Compute>() + threadIdx.x / 32 * PRODUCTS;  // [PRODUCTS]

    // Rows are counted from row0 and entries from base from here on.
    using Size = decltype(unsigned_of(Index{}));
    const Size zero = Size(base);
    const i64 row0 = piece.row0, owned = piece.row1 > row0 ? piece.row1 - row0 : 0;
    const int all = int(owned < MOST ? owned : MOST);
    ends += row0 + 1;
    const auto end_of = [&](int row) {  // -1 where that is not in this piece
      if (row >= all) return -1;
      const Size at = Size(ends[row]) - zero;
      return at > Size(size) ? -1 : int(at);
    };
    int row = 0;
    int to = end_of(lane), from = 0;  // of the row `row + lane`; of the row `row`
    bool is_head = head;
    Compute part = A::start();  // of the row `row`: the chunks before, each lane its own
    Entries entries;
    entries.load(indices, data, 0, size);
    for (int chunk = 0; row < all || chunk < size; chunk += CHUNK) {
      const int limit = chunk + CHUNK < size ? chunk + CHUNK : size;
      multiply(p, products, entries, b, chunk, limit);
      entries.load(indices, data, chunk + CHUNK, size);
      __syncwarp();  // between storing products and reading them
      int at = from > chunk ? from : chunk;  // from here on, entries of this chunk are to be added
      for (bool again = true; again && row < all;) {
        // --- the next 32 rows, as far as they end in this chunk; at once if they are broken
        int before = shuffle(to, lane ? lane - 1 : 0);
        if (lane == 0) before = from;
        const bool fine = (lane ? before >= chunk : sound) && before <= to && to >= chunk;
        const u32 open = ~ballot(row + lane < all && (!fine || to <= limit));
        const int rows = open ? bit_length(open & (0u - open)) - 1 : 32;
        if (!rows) break;
        again = rows == 32;
        const int ends_at = shuffle(to, rows - 1);
        // --- some threads for each of them
        const int shift = 5 - bit_length(u32(rows - 1));
        const int lanes = 1 << shift, i = lane >> shift;
        int start = shuffle(before, i), end = shuffle(to, i);
        const bool good = shuffle(int(fine), i) != 0;
        const int stored = end - start;
        start = start > at ? start : at;
        if (i >= rows || !good) end = start;
        to = end_of(row + rows + lane);  // under way while sums are made
        const bool is_long = lanes < 32 && end - start > LONG * lanes;
        Compute sum = A::start();
        if (!is_long) sum = add(products, start - chunk + (lane & (lanes - 1)), end - chunk, lanes);
        for (int half = lanes / 2; half > 0; half /= 2) sum = A::add(sum, shuffle_xor(sum, half));
        for (u32 mask = ballot(is_long && !(lane & (lanes - 1))); mask; mask &= mask - 1) {
          const int which = bit_length(mask & (0u - mask)) - 1;
          Compute total = add(products, shuffle(start, which) - chunk + lane,
                              shuffle(end, which) - chunk, 32);
          for (int half = 16; half > 0; half /= 2) total = A::add(total, shuffle_xor(total, half));
          if (lane == which) sum = total;
        }
        if (at == chunk) {  // the first row may have begun in a chunk before
          for (int half = 16; half > 0; half /= 2) part = A::add(part, shuffle_xor(part, half));
          if (lane == 0) sum = A::add(part, sum);
          part = A::start();
        }
        if (!(lane & (lanes - 1)) && i < rows) {
          if (!good) {
            mark(p, NO_ROWS);
            sum = At::nothing();
          }
          const Compute acc[1] = {sum};
          if (is_head && i == 0 && good) static_cast<Compute*>(p.heads)[own] = sum;
          else At::finish(p, row0 + row + i, acc, stored);
        }
        is_head = false;
        row += rows;
        from = ends_at;
        sound = from >= chunk;
        at = from > chunk ? from : chunk;
      }
      // --- the row that is left open
      part = A::add(part, add(products, at - chunk + lane, limit - chunk, 32));
      __syncwarp();  // between reading products and storing those of the next chunk
    }
    if (tail) {
      for (int half = 16; half > 0; half /= 2) part = A::add(part, shuffle_xor(part, half));
      if (lane == 0) static_cast<Compute*>(p.tails)[own] = part;
    }
  }

  SR_FN static Compute add(const Compute* products, int from, int to, int step) {
    Compute sum = A::start();
#pragma unroll 4
    for (int e = from; e < to; e += step) sum = A::add(sum, products[padded(e)]);
    return sum;
  }

  SR_FN static void multiply(const SparseParams& p, Compute* products, const Entries& entries,
                             const Storage* b, int chunk, int limit) {
    Storage right[ITEMS];  // [ITEMS]
    bool inside[ITEMS];    // [ITEMS]
#pragma unroll
    for (int s = 0; s < ITEMS; ++s) {
      inside[s] = chunk + s * 32 + int(threadIdx.x) % 32 < limit && is_column(p, entries.j[s]);
      if (inside[s]) right[s] = b[entries.j[s]];
    }
    compiler_fence();
#pragma unroll
    for (int s = 0; s < ITEMS; ++s)
      products[padded(s * 32 + int(threadIdx.x) % 32)] =
          inside[s] ? A::mul(At::entry(p, entries.left[s]), A::decode(right[s])) : At::nothing();
  }
};

// Kernel: times a matrix. A block for each tile of the path and strip of columns; a group has ITEMS
// steps of the path. Rows that end within a group are stored; the rest is joined by a segmented scan
// over the groups.
template <class A, class Index, int LANES, bool VECTOR, int ITEMS, bool SCALED, bool JOIN>
struct Csr {
  using At = Along<A, LANES, VECTOR, SCALED, JOIN>;
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  using Piece = typename At::Piece;
  static constexpr int V = At::V, GROUPS = At::GROUPS, COLUMNS = At::COLUMNS;
  static constexpr int THREADS = At::THREADS, STEPS = GROUPS * ITEMS;  // of a piece
  enum { BROKEN = -2 };

  SR_FN static void run(const SparseParams& p) {
    // --- which rows and entries this piece has
    const i64 own = blockIdx.x / u32(p.strips);
    Compute* scan = shared_memory<Compute>();                            // [2][GROUPS][COLUMNS]
    int* begins = reinterpret_cast<int*>(scan + 2 * GROUPS * COLUMNS);   // [STEPS + 1]: of rows
    int* marks = begins + STEPS + 1;                                     // [2][GROUPS]
    int* broken = marks + 2 * GROUPS;
    const i64 row0 = p.rows[own], row1 = p.rows[own + 1], all = p.m + p.entries;
    const i64 begin = own * STEPS, end = begin + STEPS < all ? begin + STEPS : all;
    const i64 entry0 = begin - row0, left = row_ends<Index>(p)[p.m] - entry0;
    const bool possible = row0 <= row1 && row1 - row0 <= end - begin;
    const int rows = possible ? int(row1 - row0) : 0, most = possible ? int(end - begin) - rows : 0;
    const int entries = left < 0 ? 0 : left < most ? int(left) : most;
    if (threadIdx.x == 0) *broken = !possible;
   for (int i = int(threadIdx.x); i <= rows; i += THREADS) {
      const i64 at = row_ends<Index>(p)[row0 + i], inside = at - entry0;
      const bool before = i == 0 && 0 <= at && inside < 0;
      begins[i] = 0 <= inside && inside <= entries ? int(inside) : before ? -1 : BROKEN;
    }
    __syncthreads();  // between storing where rows begin and reading it
    for (int i = int(threadIdx.x); i <= rows; i += THREADS)
      if (begins[i] == BROKEN || (i > 0 && begins[i - 1] > begins[i])) *broken = 1;
    __syncthreads();  // between marking a broken piece and reading the mark
    if (*broken) return spoil(p, own, row0, row1);

    // --- this group's steps of the path: fold entries, close rows
    const int steps = At::group() * ITEMS, whole = rows + entries;
    const int from = steps < whole ? steps : whole;
    const int to = from + ITEMS < whole ? from + ITEMS : whole;
    int row = rows_before(begins + 1, rows, entries, from), e = from - row, first = -1;
    const int last = rows_before(begins + 1, rows, entries, to);
    Compute acc[V], head[V];  // of the open row; of the first row that ends here
    At::clear(acc);
    At::clear(head);
    for (; row < last; ++row) {
      take(p, acc, entry0, e, begins[row + 1]);
      if (first < 0) {  // it may have begun in another group: kept until that is joined
        first = row;
#pragma unroll
        for (int v = 0; v < V; ++v) head[v] = acc[v];
      } else {
        At::finish(p, row0 + row, acc, begins[row + 1] - begins[row]);
      }
      At::clear(acc);
    }
    take(p, acc, entry0, e, to - last);

    // --- what the groups before left open: a scan that begins anew where a row ended
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
    // --- the last group has what the piece leaves open; a group's first row gets what came before
    if (At::group() == GROUPS - 1) put(p, p.tails, own, acc);
    if (first < 0) return;
    if (At::group() > 0) {
#pragma unroll
      for (int v = 0; v < V; ++v) head[v] = A::add(at(scan, buffer, At::group() - 1)[v], head[v]);
    }
    if (begins[first] < 0) put(p, p.heads, own, head);  // it began in a piece before
    else At::finish(p, row0 + first, head, begins[first + 1] - begins[first]);
  }

  SR_FN static Compute* at(Compute* scan, int buffer, int group) {
    return scan + (buffer * GROUPS + group) * COLUMNS + At::slot();
  }
  SR_FN static void put(const SparseParams& p, void* parts, i64 own, const Compute (&acc)[V]) {
    const i64 column = At::column(p);
    Compute* to = static_cast<Compute*>(parts) + own * p.n + column;
    for (int v = 0; v < V; ++v)
      if (column + v < p.n) to[v] = acc[v];
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

  // Row pointers do not ascend: all of the piece is `nothing`.
  SR_FN static void spoil(const SparseParams& p, i64 own, i64 row0, i64 row1) {
    mark(p, NO_ROWS);
    Compute acc[V];
#pragma unroll
    for (int v = 0; v < V; ++v) acc[v] = At::nothing();
    put(p, p.tails, own, acc);
    put(p, p.heads, own, acc);
    for (i64 row = row0 + At::group(); row < row1; row += GROUPS) At::finish(p, row, acc, p.k);
  }
};

// Kernel: rows that end in another piece than they began in, and are shared. A warp for each piece,
// LANES of it along the columns; its PARTS share the pieces in between, and are joined in a fixed
// order.
template <class A, class Index, int LANES, bool JOIN>
struct CsrReduce {
  using At = Along<A, 1, false, false, JOIN>;
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;

  SR_FN static void run(const SparseParams& p) {
    constexpr int PARTS = 32 / LANES;
    const i64 own = i64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (own >= p.pieces) return;
    const i64 row = p.rows[own];
    if (row >= p.rows[own + 1]) return;  // no row ends here
    const i64 from = row_ends<Index>(p)[row], to = row_ends<Index>(p)[row + 1];
    if (from < 0 || to > p.entries || to - from <= p.longest) return;
    const i64 first = (row + from) / p.steps;
    if (first >= own) return;  // it began in this piece, which stored it
    const int lane = int(threadIdx.x) % LANES, part = int(threadIdx.x) % 32 / LANES;
    const LinearCombination<A> combine(p);
    for (i64 begin = 0; begin < p.n; begin += LANES) {
      const i64 column = begin + lane;
      Compute sum = A::start();
      const Compute* tails = static_cast<const Compute*>(p.tails) + (column < p.n ? column : 0);
#pragma unroll 8
      for (i64 t = first + part; t < own; t += PARTS) {
        // unless row pointers are broken elsewhere, the row is what piece t left open
        const bool sound = p.rows[t + 1] == row && p.rows[t] <= row;
        if (!sound) mark(p, NO_ROWS);
        sum = A::add(sum, sound ? tails[t * p.n] : At::nothing());
      }
      Compute* shared = shared_memory<Compute>() + threadIdx.x;  // [warps][PARTS][LANES]
      *shared = sum;
      for (int half = PARTS / 2; half > 0; half /= 2) {
        __syncwarp();  // between storing 2 * half sums and reading them
        if (part < half) *shared = sum = A::add(sum, shared[half * LANES]);
      }
      __syncwarp();  // between reading the sums and storing those of the next columns
      if (part > 0 || column >= p.n) continue;
      sum = A::add(sum, static_cast<const Compute*>(p.heads)[own * p.n + column]);
      sum = At::whole(p, sum, to - from);
      Storage* c = static_cast<Storage*>(p.c) + row * p.c_m + column * p.c_n;
      *c = combine(sum, p.mode & READ_C ? *c : Storage{});
    }
  }
};

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

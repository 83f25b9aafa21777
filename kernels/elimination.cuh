// Kernel: closures of matrices of up to some thousand rows in one launch, by blocked Floyd-Warshall
// on square tiles (Park, Penner and Prasanna, 2004).
//
// Round k closes tile (k, k), multiplies the other tiles of row and column k by it, and joins the
// products of the two to all other tiles. These are tasks, in an order in which each comes after
// all that it needs; a block takes the next one by a ticket, and waits until the tiles that it reads
// are there. So a block waits only for tasks that running blocks have: whatever the number of
// blocks that are resident at once, the first unfinished task never waits, and there is no deadlock.
//
//     tickets: pivot 0 | panels of round 0 | then for each round k:
//              pivot k + 1 | updates of row and column k + 1 | some other updates of round k |
//              panels of round k + 1 | the remaining updates of round k
//
// So the chain of pivots, which is serial, runs beside the updates of the round before.
//
// Panels are kept apart from the matrix, as [k][row] and [k][column] words, for RING rounds: later
// rounds change their tiles while updates still read them. Hence each entry is the same in every
// run, whatever the order in which blocks run.
#pragma once
#include "closure.cuh"
#include "multiplier.cuh"

namespace sr {

struct EliminationParams {
  const void* from;   // [batch][n][n]
  void* a;            // [batch][n][n]: the closure; may be `from`
  void* panels;       // [batch][RING][2][tiles][SIDE][SIDE] of Word: of columns, and of rows
  u32* progress;      // [1 + batch * (1 + tiles + tiles²)], all 0 at first: Progress
  u16* changes;       // [batch][n][pitch], by columns: the last GRAIN nodes that changed an entry
  i64 from_batch, from_m, from_n, a_batch, a_m, a_n;  // in elements
  i64 zero, one;      // the low bytes are a Storage
  int n, batch, tiles;
  int ahead;          // updates of a round before the panels of the next one
  int unit;           // 1: see Step::take_mixed
  int pitch;          // a multiple of 4
};

// A task: tile (i, j) in round k.
struct Task {
  enum Kind { PIVOT, ROW, COLUMN, UPDATE };
  Kind kind;
  int k, i, j;

  // The one at a place in the order; `ahead` updates come before the panels of the next round.
  SR_FN Task(int place, int tiles, int ahead) : kind(PIVOT), k(0), i(0), j(0) {
    const int panels = 2 * (tiles - 1), each = tiles * tiles - 1;  // tasks of a round
    if (place == 0) return;
    if (place <= panels) {
      panel(place - 1, tiles);
      return;
    }
    place -= 1 + panels;
    k = place / each;
    if (k >= tiles - 1) {  // the last round: nothing comes ahead
      k = tiles - 1;
      place -= k * each;
      update(place / k, place % k);
      return;
    }
    place -= k * each;
    const int next = k + 1, others = tiles - 2;
    if (place == 0) {
      k = i = j = next;
      return;
    }
    place -= 1;
    if (place < others) {
      update(next, other(place));
      return;
    }
    place -= others;
    if (place < others) {
      update(other(place), next);
      return;
    }
    place -= others;
    if (ahead > others * others) ahead = others * others;
    if (place >= ahead && place < ahead + panels) {
      k = next;
      panel(place - ahead, tiles);
      return;
    }
    if (place >= ahead) place -= panels;
    update(other(place / others), other(place % others));
  }
  // How many there are.
  SR_FN static int count(int tiles) {
    return 2 * tiles - 1 + (tiles - 1) * (tiles * tiles - 1) + (tiles - 1) * (tiles - 1);
  }

 private:
  SR_FN int other(int x) const { return x < k ? x : x + 2; }  // but k and k + 1
  SR_FN void panel(int place, int tiles) {
    const bool row = place < tiles - 1;
    const int at = row ? place : place - (tiles - 1), x = at < k ? at : at + 1;  // but k
    kind = row ? ROW : COLUMN;
    i = row ? k : x;
    j = row ? x : k;
  }
  SR_FN void update(int i_, int j_) {
    kind = UPDATE;
    i = i_;
    j = j_;
  }
};

// Pivot: an Algebra as Step's, whose products may be repeated without a conversion between them.
// STOPS: integers, which a cycle that improves itself would soon carry out of their range: the
// elimination stops there, and an entry of the diagonal is better than one.
// VECTOR, FRESH: as for ClosureTile. CHANGES: note which nodes change an entry; nothing is written
// for entries that stay as they are.
template <class Step, class Pivot, class Tile, bool VECTOR, bool FRESH, bool STOPS, bool CHANGES>
struct Elimination : Multiplier<Step, Tile> {
  using Multiplier<Step, Tile>::acc;  // [TM][TN]: entries of the tile
  using A = typename Step::Algebra;
  using Word = typename Step::Word;
  using Storage = typename A::Storage;
  static constexpr int SIDE = Tile::BM, TM = Tile::TM, TN = Tile::TN, LD = SIDE + Tile::PAD;
  static constexpr int RING = 3;          // rounds whose panels are kept
  static constexpr int TILE = SIDE * SIDE;  // words of a tile
  // Bytes of a tile in shared memory, and of two buffers of a pivot's row and column.
  static constexpr int OPERAND = SIDE * LD * int(sizeof(Word));
  static constexpr int LINES = 2 * SIDE * int(sizeof(Word));
  static constexpr int BYTES =
      2 * OPERAND + 2 * LINES + 16 + (CHANGES ? TILE * int(sizeof(Word)) : 0);
  static constexpr int GRAIN = SIDE < 64 ? SIDE : 64;  // nodes whose changes are noted together
  static_assert(Tile::BM == Tile::BN, "tiles on the diagonal are square");
  static_assert(TM % 4 == 0 && TN % 4 == 0, "rows and columns come in groups of four");
  static_assert(Step::COLUMNS == 1 && sizeof(Word) == sizeof(typename A::Compute),
                "a word is an entry");

  SR_FN static Word* left() { return shared_memory<Word>(); }  // [SIDE][LD], k-major
  SR_FN static Word* right() { return left() + SIDE * LD; }    // [SIDE][LD]
  SR_FN static unsigned char* lines(int which) {
    return shared_memory<unsigned char>() + 2 * OPERAND + which * LINES;
  }
  SR_FN static u32* slot() { return reinterpret_cast<u32*>(lines(2)); }  // [2]: ticket; stopped

  SR_FN static void run(const EliminationParams& p) {
    const bool first = threadIdx.x == 0;
    const u32 tickets = u32(Task::count(p.tiles)) * u32(p.batch);
    if (first) slot()[0] = fetch_add(p.progress, 1u);
    for (;;) {
      __syncthreads();  // between storing a ticket and reading it; the last task and this one
      const u32 ticket = slot()[0];
      if (ticket >= tickets) return;
      const int matrix = int(ticket % u32(p.batch));
      const Task task(int(ticket / u32(p.batch)), p.tiles, p.ahead);
      Elimination tile;
      const u32 next = tile.work(p, task, matrix);
      if (first) slot()[0] = next;
    }
  }

  // Returns the next ticket, in the first thread.
  SR_FN u32 work(const EliminationParams& p, const Task& task, int matrix) {
    const int tiles = p.tiles, round = task.kind == Task::PIVOT ? task.k - 1 : task.k;
    u32* stopped = p.progress + 1 + i64(matrix) * (1 + tiles + tiles * tiles);
    u32* finished = stopped + 1;      // [tiles]: updates of each round
    u32* done = finished + tiles;     // [tiles][tiles]: rounds that a tile has been through
    const bool panel = task.kind != Task::UPDATE;  // whether the task writes to the panels
    const int thread = int(threadIdx.x);

    // --- the tile itself; each is in one task of the first round
    if (thread == 0 && round > 0) wait_for(done + task.i * tiles + task.j, u32(round));
    if (thread == 1 && panel && task.k >= RING)
      wait_for(finished + task.k - RING, u32((tiles - 1) * (tiles - 1)));
    __syncthreads();  // between other blocks' work and reading it
    u32 next = 0;
    if (thread == 0) next = fetch_add(p.progress, 1u);  // arrives during the work
    const Matrix<A> memory(p, matrix);
    load(memory, task, p.n, round <= 0);
    if (CHANGES) remember();
    if (task.kind == Task::COLUMN) put_columns(left(), LD, acc);
    if (task.kind == Task::ROW) put_rows(right(), LD, acc);

    // --- the panels, by a thread for each condition
    const bool update = task.kind == Task::PIVOT || task.kind == Task::UPDATE;
    if (round >= 0 && (thread == 0 || (thread == 1 && update))) {
      const int row = update && thread ? round : task.i;     // (i, round) and (round, j), or ...
      const int column = update && thread ? task.j : round;
      const int diagonal = task.k * tiles + task.k;
      wait_for(done + (update ? row * tiles + column : diagonal), u32(round + 1));
    }
    if (STOPS && thread == 0) slot()[1] = load_current(stopped);
    __syncthreads();  // between other blocks' work and reading it
    const bool skip = STOPS && slot()[1];
    Word* panels = static_cast<Word*>(p.panels) + i64(matrix) * (RING * 2) * tiles * TILE;
    const int rest = p.n - round * SIDE, depth = rest < SIDE ? rest : SIDE;  // steps of k
    if (round >= 0) {
      const int at = round % RING * tiles;
      const Word* columns = panels + i64(2 * at) * TILE;
      const Word* rows = columns + i64(tiles) * TILE;
      if (task.kind != Task::COLUMN) fetch(left(), columns + i64(task.i) * TILE);
      if (task.kind != Task::ROW) fetch(right(), rows + i64(task.j) * TILE);
      copy_commit();
      copy_wait<0>();
    }
    __syncthreads();  // between storing the operands and reading them

    // --- arithmetic
    constexpr int GRAINS = SIDE / GRAIN;
    u16* changes = CHANGES ? p.changes + i64(matrix) * p.n * p.pitch : nullptr;
    if (round >= 0 && !skip && !CHANGES) multiply(0, depth, p.unit);
    if (round >= 0 && !skip && CHANGES)
#pragma unroll 1
      for (int k = 0; k < depth; k += GRAIN) {
        multiply(k, depth - k < GRAIN ? depth - k : GRAIN, p.unit);
        note(changes, task, p, round * GRAINS + k / GRAIN);
      }
    if (task.kind == Task::PIVOT && !skip) {
      const int own = p.n - task.k * SIDE;
      if (close(own < SIDE ? own : SIDE, memory.one) && thread == 0) store_current(stopped, 1u);
      if (CHANGES) note(changes, task, p, task.k * GRAINS);
    }

    // --- results
    store(memory, task, p.n);
    if (panel) {
      const int at = task.k % RING * tiles;
      Word* columns = panels + i64(2 * at) * TILE;
      Word* rows = columns + i64(tiles) * TILE;
      if (task.kind != Task::ROW) put_columns(columns + i64(task.i) * TILE, SIDE, acc);
      if (task.kind != Task::COLUMN) put_rows(rows + i64(task.j) * TILE, SIDE, acc);
    }
    __syncthreads();  // between this block's stores and telling others
    if (thread == 0) {
      memory_fence();
      store_current(done + task.i * tiles + task.j, u32(task.k + 1));
      if (round >= 0 && round == (panel ? task.k - 1 : task.k)) atomic_add(finished + round, 1u);
    }
    return next;
  }

  // --- moving tiles

  // A tile of a panel to shared memory, asynchronously.
  template <class W>
  SR_FN static void fetch(W* to, const W* from) {
    constexpr int N = 16 / int(sizeof(W)), CHUNKS = SIDE / N;  // of a line
#pragma unroll
    for (int c = 0; c < TILE / N; c += Tile::THREADS) {
      const int chunk = c + int(threadIdx.x), line = chunk / CHUNKS, at = chunk % CHUNKS * N;
      copy_async<16>(to + line * LD + at, from + line * SIDE + at);
    }
  }

  // Entries to lines `ld` words apart: a line is a row of the tile, or a column of it.
  template <class W>
  SR_FN static void put_rows(W* to, int ld, const W (&own)[TM][TN]) {
#pragma unroll
    for (int i = 0; i < TM; ++i) put_line(to + Tile::row(i) * ld, own[i]);
  }
  template <class W>
  SR_FN static void put_line(W* to, const W (&own)[TN]) {
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      const W four[4] = {own[j], own[j + 1], own[j + 2], own[j + 3]};
      put(to + Tile::column(j), four);
    }
  }
  SR_FN static void put_columns(Word* to, int ld, const Word (&own)[TM][TN]) {
#pragma unroll
    for (int j = 0; j < TN; ++j)
#pragma unroll
      for (int i = 0; i < TM; i += 4) {
        const Word four[4] = {own[i][j], own[i + 1][j], own[i + 2][j], own[i + 3][j]};
        put(to + Tile::column(j) * ld + Tile::row(i), four);
      }
  }
  template <class W>
  SR_FN static void put(W* to, const W (&four)[4]) {
    constexpr int N = 16 / int(sizeof(W)) < 4 ? 16 / int(sizeof(W)) : 4;
#pragma unroll
    for (int e = 0; e < 4; e += N) {
      Pack<W, N> group;  // [N]
#pragma unroll
      for (int q = 0; q < N; ++q) group.x[q] = four[e + q];
      *reinterpret_cast<Pack<W, N>*>(to + e) = group;
    }
  }

  // The tile of the matrix, as it is given in the first round. Entries outside are any value: no
  // entry inside depends on them.
  SR_FN void load(const Matrix<A>& from, const Task& task, int n, bool given) {
#pragma unroll
    for (int r = 0; r < TM; ++r)
#pragma unroll
      for (int c = 0; c < TN; c += 4) {
        const int i = task.i * SIDE + Tile::row(r), j = task.j * SIDE + Tile::column(c);
        const Storage* at = FRESH && given ? &from.given(i, j) : &from.at(i, j);
        const i64 step = FRESH && given ? from.from_n : from.a_n;
        Pack<Storage, 4> four{};
        if (VECTOR && i < n && j < n) four = *reinterpret_cast<const Pack<Storage, 4>*>(at);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const bool inside = i < n && j + q < n;
          if (!VECTOR && inside) four.x[q] = at[q * step];
          Word& own = acc[r][c + q];
          own = inside ? A::decode(four.x[q]) : A::start();
          if (FRESH && given) own = from.with_one(i, j + q, own);
        }
      }
  }

  // To the matrix. What is kept in registers is what was stored, as if it was read again.
  SR_FN void store(const Matrix<A>& to, const Task& task, int n) {
#pragma unroll
    for (int r = 0; r < TM; ++r)
#pragma unroll
      for (int c = 0; c < TN; c += 4) {
        const int i = task.i * SIDE + Tile::row(r), j = task.j * SIDE + Tile::column(c);
        Pack<Storage, 4> four;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          four.x[q] = A::encode(acc[r][c + q]);
          if constexpr (!A::PLAIN) acc[r][c + q] = A::decode(four.x[q]);
          if (VECTOR || i >= n || j + q >= n) continue;
          to.at(i, j + q) = four.x[q];
        }
        if (!VECTOR || i >= n || j >= n) continue;
        *reinterpret_cast<Pack<Storage, 4>*>(&to.at(i, j)) = four;
      }
  }

  // --- changes

  // Where four entries of a row are kept, as they were when changes were noted last.
  SR_FN static Word* kept(int r, int c) {
    const int group = (r * TN + c) / 4 * Tile::THREADS + int(threadIdx.x);
    return reinterpret_cast<Word*>(lines(2) + 16) + 4 * group;
  }
  SR_FN void remember() const {
#pragma unroll
    for (int r = 0; r < TM; ++r) remember(r, 0, TN);
  }
  SR_FN void remember(int r, int begin, int end) const {
#pragma unroll
    for (int c = begin; c < end; c += 4) {
      const Word four[4] = {acc[r][c], acc[r][c + 1], acc[r][c + 2], acc[r][c + 3]};
      put(kept(r, c), four);
    }
  }

  // Write the number of a grain for all entries that have changed.
  SR_FN void note(u16* changes, const Task& task, const EliminationParams& p, int grain) const {
#pragma unroll
    for (int r = 0; r < TM; r += 4)
#pragma unroll
      for (int c = 0; c < TN; c += 4) {
        u32 changed = 0;  // a bit for each row, by columns
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Word* old = kept(r + e, c);  // [4]
#pragma unroll
          for (int q = 0; q < 4; ++q) changed |= u32(acc[r + e][c + q] != old[q]) << (4 * q + e);
        }
        const int i = task.i * SIDE + Tile::row(r), j = task.j * SIDE + Tile::column(c);
        if (!changed || i >= p.n) continue;
#pragma unroll
        for (int e = 0; e < 4; ++e) remember(r + e, c, c + 4);
        const Pack<u16, 4> all{u16(grain), u16(grain), u16(grain), u16(grain)};
        u16* to = changes + i64(j) * p.pitch + i;
#pragma unroll
        for (int q = 0; q < 4; ++q, to += p.pitch) {
          const u32 rows = changed >> 4 * q & 15;
          if (j + q >= p.n || !rows) continue;
          if (rows == 15) *reinterpret_cast<Pack<u16, 4>*>(to) = all;
          else
#pragma unroll
            for (int e = 0; e < 4; ++e)
              if (rows >> e & 1) to[e] = u16(grain);
        }
      }
  }

  // --- arithmetic

  // acc ⊕= left ⊗ right over `depth` steps of k, from step `begin` on.
  SR_FN void multiply(int begin, int depth, int unit) {
    constexpr int DEPTH = Step::DEPTH, UNROLL = 16 / DEPTH / 2;
    static_assert(SIDE % (UNROLL * DEPTH) == 0, "whole loops fill a tile");
    const Word* as = left() + begin * LD + Tile::row(0);
    const Word* bs = right() + begin * LD + Tile::column(0);
    const int whole = depth / (UNROLL * DEPTH) * (UNROLL * DEPTH);
    if (whole) {
      Fragment<Step, Tile, DEPTH> fragment[2];  // [2]: of this step and of the next
      fragment[0].template load<LD, LD>(as, bs, 0);
#pragma unroll 1
      for (int k = 0; k < whole; k += UNROLL * DEPTH) {
#pragma unroll
        for (int s = 0; s < UNROLL; ++s) {
          // the next; after the last one any
          const int ahead = s + 1 < UNROLL || k + UNROLL * DEPTH < whole ? (s + 1) * DEPTH : 0;
          fragment[(s + 1) % 2].template load<LD, LD>(as, bs, ahead);
          this->take(fragment[s % 2], unit);
        }
        as += UNROLL * DEPTH * LD;
        bs += UNROLL * DEPTH * LD;
      }
    }
#pragma unroll 1
    for (int k = 0; k < depth - whole; ++k) {
      Fragment<Step, Tile, 1> fragment;
      fragment.template load<LD, LD>(as, bs, k);
      this->take(fragment, unit);
    }
  }

  // Close the tile, of which `depth` rows and columns are inside the matrix. Whether it stopped, in
  // all threads. Row and column k + 1 are updated first in the step of k, so that others need not
  // wait for the rest.
  SR_FN bool close(int depth, Word one) {
    publish(0, 0, 0);
#pragma unroll 1
    for (int g = 0; g < depth; g += 4)
#pragma unroll
      for (int q = 0; q < 4; ++q) {  // k = g + q
        if (g + q >= depth) break;
        const Word* row = line(q % 2);  // [SIDE]: row k, then column k
        // between storing row and column k and reading them; the other buffer was read before the
        // last one
        __syncthreads();
        if (STOPS && Pivot::better(row[g + q], one)) return true;
        Fragment<Step, Tile, 1> cross;  // of column k, and of row k
        cross.template load<0, 0>(row + SIDE + Tile::row(0), row + Tile::column(0), 0);
        const int next = (q + 1) % 4;
        through<true>(next, cross);
        publish(q == 3 ? g + 4 : g, next, (q + 1) % 2);
        through<false>(next, cross);
      }
    return false;
  }
  SR_FN static Word* line(int which) { return reinterpret_cast<Word*>(lines(which)); }

  // Store row and column g + q to a buffer.
  SR_FN void publish(int g, int q, int which) const {
    Word* row = line(which);
    Word* column = row + SIDE;
#pragma unroll
    for (int i = 0; i < TM; i += 4)
      if (Tile::row(i) == g) put_line(row, acc[i + q]);
#pragma unroll
    for (int j = 0; j < TN; j += 4)
      if (Tile::column(j) == g) {
#pragma unroll
        for (int i = 0; i < TM; i += 4) {
          const Word four[4] = {acc[i][j + q], acc[i + 1][j + q], acc[i + 2][j + q],
                                acc[i + 3][j + q]};
          put(column + Tile::row(i), four);
        }
      }
  }

  // The entries of rows and columns `next` of each group of four, or the others, take the paths
  // through k.
  template <bool NEXT>
  SR_FN void through(int next, const Fragment<Step, Tile, 1>& cross) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        if ((i % 4 == next || j % 4 == next) != NEXT) continue;
        acc[i][j] = Pivot::add(acc[i][j], Pivot::mul(cross.a[i][0], cross.b[j][0]));
      }
  }
};

}  // namespace sr

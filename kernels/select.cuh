// Kernels: the k least of each row of a matrix that comes tile by tile (gpu/select.py).
#pragma once
#include "base.cuh"

namespace sr {

struct SelectParams {
  const void* tile;      // [rows][step]; a multiple of 16 bytes from row to row
  void* value;           // [rows][k] of Value: the least so far, ascending
  i64* index;            // [rows][k]: their columns of the whole matrix; of nothing: NOTHING
  const void* left;      // [rows][width] of Value; this and what follows only with a screen
  const void* right;     // [columns][width] of Value
  const float* column;   // [columns]: what is added to the entries of a column
  const double* offset;  // [rows]
  u32* found;            // += entries that were computed, if it is wanted
  const u32* candidates; // [rows][capacity]: places in `order`; this and what follows only of ...
  const u32* order;      // ... CANDIDATES and KEPT: numbers of columns
  u32* count;            // [rows]: how many candidates there were; 0 afterwards
  u32* most;             // [rows]: the largest count
  float* bound;          // [rows]: what approximations of the next candidates must not exceed
  const void* kept;      // [rows][capacity] of Value: of KEPT candidates
  i64 step, capacity;    // in elements
  u64 growth;            // the bits of a double
  i64 base;              // the first column's number
  int rows, columns, k, width;
};

// Unsigned integers in the order of the numbers; zeros are equal, NaN is last.
template <class T>
struct OrderKey {
  using Key = u32;  // of integers of 32 bits and less
  static constexpr u32 SIGN = 1u << 31;
  SR_FN static Key of(T x) { return u32(i32(x)) ^ SIGN; }
  SR_FN static T number(Key key) { return T(i32(key ^ SIGN)); }
};
template <class T, class Key_>
struct FloatKey {
  using Key = Key_;
  static constexpr Key SIGN = Key(1) << (8 * sizeof(Key) - 1);
  SR_FN static Key of(T x) {
    const Key raw = bits_as<Key>(x + T(0));
    return x != x ? ~Key(0) : raw & SIGN ? ~raw : raw | SIGN;
  }
  SR_FN static T number(Key key) { return bits_as<T>(key & SIGN ? key ^ SIGN : ~key); }
};
template <>
struct OrderKey<float> : FloatKey<float, u32> {};
template <>
struct OrderKey<double> : FloatKey<double, u64> {};

// Entries are ordered by key, then by index, so that all are different.
template <class Key>
struct Entry {
  Key key;
  u32 index;

  SR_FN bool before(const Entry& other) const {
    return key < other.key || (key == other.key && index < other.index);
  }
};

template <class Key>
struct Entries {
  Key* key;
  u32* index;

  SR_FN Entry<Key> operator[](int i) const { return {key[i], index[i]}; }
  SR_FN void put(int i, const Entry<Key>& x) const {
    key[i] = x.key;
    index[i] = x.index;
  }
  // How many of the first `count`, which ascend, are before x.
  SR_FN int place(int count, const Entry<Key>& x) const {
    int low = 0;
    while (count > 0) {
      const int half = count / 2;
      const bool right = (*this)[low + half].before(x);
      low = right ? low + half + 1 : low;
      count = right ? count - half - 1 : half;
    }
    return low;
  }
};

// Where entries come from: a tile of them; a tile of approximations, of half or float; lists of
// columns that such a tile left (Screened in tensor.cuh); lists of columns and values (Sieve). Of
// approximations, entries that may be among the least are computed when they are merged, as sums of
// squared differences.
enum Source { VALUES, APPROXIMATIONS, CANDIDATES, KEPT };

// A warp has a row. Entries that are before the last of its list are collected, and merged into the
// list when there is no room for another 32. VECTOR: 16 bytes of `left` and `right` can be read at
// once.
template <class Value, class Tile, int WARPS, Source FROM, bool VECTOR>
struct Select {
  using Order = OrderKey<Value>;
  using Key = typename Order::Key;
  using Piece = Chunk<Tile, true>;
  static constexpr int V = Piece::V, ROOM = 64, AHEAD = 4;  // pieces under way
  static constexpr bool SCREEN = FROM == APPROXIMATIONS || FROM == CANDIDATES;
  static constexpr bool LISTED = FROM == CANDIDATES || FROM == KEPT;
  static constexpr u32 NONE = ~0u;
  static constexpr i64 NOTHING = 0x7fffffffffffffff;

  const SelectParams& p;
  i64 row;
  int lane, count = 0, computed = 0;
  bool changed = false;
  Entries<Key> list, other, fresh, sorted;  // [k], [k], [ROOM], [ROOM]
  Entry<Key> last;
  Value limit;  // of `last`
  float bound;

  SR_FN static void run(const SelectParams& p) {
    const int warp = int(threadIdx.x) / 32;
    const i64 row = i64(blockIdx.x) * WARPS + warp;
    if (row >= p.rows) return;
    const int room = 2 * (p.k + ROOM);
    Key* keys = shared_memory<Key>() + warp * room;
    u32* indices = reinterpret_cast<u32*>(shared_memory<Key>() + WARPS * room) + warp * room;
    const auto entries = [&](int i) { return Entries<Key>{keys + i, indices + i}; };
    Select own{p, row, int(threadIdx.x) % 32};
    own.list = entries(0);
    own.other = entries(p.k);
    own.fresh = entries(2 * p.k);
    own.sorted = entries(2 * p.k + ROOM);
    own.load();
    if constexpr (LISTED) own.take();
    else own.look();
    if (own.count) own.merge();
    if (own.changed) own.store();
    if (own.lane != 0) return;
    if constexpr (FROM == APPROXIMATIONS) {
      if (p.found) atomic_add(p.found, u32(own.computed));
    }
    if constexpr (LISTED) {
      const u32 were = p.count[row];
      if (p.most[row] < were) p.most[row] = were;
      p.count[row] = 0;
    }
    if constexpr (FROM == CANDIDATES) p.bound[row] = own.bound;
  }

  SR_FN void load() {
    const Value* value = static_cast<const Value*>(p.value) + row * p.k;
    for (int i = lane; i < p.k; i += 32) {
      const i64 index = p.index[row * p.k + i];
      list.put(i, {Order::of(value[i]), index == NOTHING ? NONE : u32(index)});
    }
    set_limit();
  }
  SR_FN void store() {
    Value* value = static_cast<Value*>(p.value) + row * p.k;
    for (int i = lane; i < p.k; i += 32) {
      const Entry<Key> x = list[i];
      value[i] = Order::number(x.key);
      p.index[row * p.k + i] = x.index == NONE ? NOTHING : i64(x.index);
    }
  }
  // What a new entry must be before.
  SR_FN void set_limit() {
    __syncwarp();  // between writing the list and reading its last entry
    last = list[p.k - 1];
    limit = Order::number(last.key);
    if constexpr (SCREEN)
      bound = float(double(limit) * bits_as<double>(p.growth) + p.offset[row]);
  }

  // The candidates that there was room for.
  SR_FN void take() {
    const u32* from = p.candidates + row * p.capacity;
    const i64 were = p.count[row];
    const int kept = int(were < p.capacity ? were : p.capacity);
    for (int first = 0; first < kept; first += 32) {
      const int i = first + lane;
      if constexpr (FROM == KEPT) {
        Entry<Key> x{};
        bool hit = i < kept;
        if (hit) {
          x = {Order::of(static_cast<const Value*>(p.kept)[row * p.capacity + i]),
               p.order[from[i]]};
          hit = x.before(last);
        }
        const u32 all = ballot(hit);
        if (hit) fresh.put(count + popcount(all & ((1u << lane) - 1)), x);
        count += popcount(all);
      } else {
        if (i < kept) fresh.index[count + lane] = p.order[from[i]];
        count += kept - first < 32 ? kept - first : 32;
      }
      if (count > ROOM - 32) merge();
    }
  }

  SR_FN void look() {
    const Tile* tile = static_cast<const Tile*>(p.tile) + row * p.step;
    for (int first = 0; first < p.columns; first += AHEAD * 32 * V) {
      Piece x[AHEAD];  // [AHEAD][V]
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const int c = first + (i * 32 + lane) * V;
        if (c < p.columns) x[i].load(tile + c);
      }
      compiler_fence();
      const bool whole = first + AHEAD * 32 * V <= p.columns;
      bool any = SCREEN || !whole || last.index == NONE;
      if (!SCREEN && whole) {  // by one comparison: of equal entries later ones do not pass
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
#pragma unroll
          for (int v = 0; v < V; ++v) any |= !(Value(widened(x[i][v])) >= limit);
      }
      if (!ballot(any)) continue;
      u32 hits = 0;  // bit i * V + v
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const int c = first + (i * 32 + lane) * V + v;
          if (c < p.columns) hits |= u32(passes(x[i][v], c)) << (i * V + v);
        }
      if (ballot(hits != 0)) collect(tile, first, hits);
    }
  }
  SR_FN void collect(const Tile* tile, int first, u32 hits) {
#pragma unroll 1
    for (int bit = 0; bit < AHEAD * V; ++bit) {
      const bool hit = hits >> bit & 1;
      const u32 all = ballot(hit);
      if (hit) {
        const int c = first + (bit / V * 32 + lane) * V + bit % V;
        const int at = count + popcount(all & ((1u << lane) - 1));
        fresh.index[at] = u32(p.base + c);
        if constexpr (!SCREEN) fresh.key[at] = Order::of(tile[c]);
      }
      count += popcount(all);
      if (count > ROOM - 32) merge();
    }
  }
  SR_FN bool passes(Tile x, int c) const {
    if constexpr (SCREEN) return widened(x) + p.column[c] <= bound;
    else return Entry<Key>{Order::of(x), u32(p.base + c)}.before(last);
  }

  template <class T>
  SR_FN static T widened(T x) { return x; }
  SR_FN static float widened(half x) { return to_float(x); }

  // The fresh entries join the list: each goes to the place that counting gives it.
  SR_FN void merge() {
    __syncwarp();  // between collecting entries and reading them
    if constexpr (SCREEN) {
      computed += count;
      for (int i = lane; i < count; i += 32) fresh.key[i] = Order::of(distance(fresh.index[i]));
      __syncwarp();  // between writing the keys and reading them
    }
    for (int i = lane; i < count; i += 32) {
      const Entry<Key> x = fresh[i];
      int at = 0;
      for (int j = 0; j < count; ++j) at += fresh[j].before(x);
      sorted.put(at, x);
    }
    __syncwarp();  // between sorting the fresh entries and reading them
    for (int i = lane; i < count; i += 32) {
      const Entry<Key> x = sorted[i];
      const int at = i + list.place(p.k, x);
      if (at < p.k) other.put(at, x);
    }
    for (int j = lane; j < p.k; j += 32) {
      const Entry<Key> x = list[j];
      const int at = j + sorted.place(count, x);
      if (at < p.k) other.put(at, x);
    }
    const Entries<Key> done = other;
    other = list;
    list = done;
    count = 0;
    changed = true;
    set_limit();
  }

  // Summed up in the order of a product.
  SR_FN Value distance(u32 index) const {
    using Part = Chunk<Value, VECTOR>;
    const Value* x = static_cast<const Value*>(p.left) + row * p.width;
    const Value* y = static_cast<const Value*>(p.right) + (i64(index) - p.base) * p.width;
    Value total = 0;
    for (int k = 0; k < p.width; k += Part::V) {
      Part a, b;  // [V]
      a.load(x + k);
      b.load(y + k);
#pragma unroll
      for (int v = 0; v < Part::V; ++v) {
        const Value gap = a[v] - b[v];
        total = fma(gap, gap, total);
      }
    }
    return total;
  }
};

}  // namespace sr

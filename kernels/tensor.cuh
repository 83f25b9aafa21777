// The product over plus-times on Hopper's tensor cores: loader and multiplier are the chip's own, the
// order of tiles, split sums and the epilogue those of product.cuh.
#pragma once
#include "epilogue.cuh"
#include <hopper.cuh>

namespace sr {

struct TensorParams {
  TensorMap a, b;   // [batch][rows][k], as boxes
  ProductParams p;  // its a_batch and b_batch are 1, or 0 where all matrices have the same operand
};

// What an accumulator is, and what it becomes. PARTS: matrices whose sum an operand is.
template <class A, class Kind_, int PARTS_>
struct Tensor {
  using Algebra = A;
  using Kind = Kind_;
  using Word = typename Kind::Sum;
  static constexpr int COLUMNS = 1, PARTS = PARTS_;

  SR_FN static Word join(Word x, Word y) { return x + y; }
  SR_FN static typename A::Compute out(Word x, int) {
    if constexpr (Is<Word>::floating) return x;
    else return x ? -1 : 0;  // of so many pairs that are true
  }
};

// Two warpgroups, each with 64 rows and all columns; a third one copies. VN columns of a thread lie
// side by side when C is written: 2 as `multiply` has them, or 8 after lanes have exchanged words.
template <int BN_, int VN_>
struct TensorTile {
  static constexpr int BM = 128, BN = BN_, TM = 2, TN = BN / 4, VN = VN_;
  static_assert(VN == 2 || VN == 8, "two columns, or four times as many");
  static constexpr int THREADS = BM / 64 * WARPGROUP;  // that multiply

  SR_FN static int row(int i) {
    const int t = int(threadIdx.x);
    return t / 32 * 16 + t % 32 / 4 + 8 * i;
  }
  SR_FN static int column(int j) { return j / VN * 4 * VN + int(threadIdx.x) % 4 * VN + j % VN; }
  SR_FN static constexpr int at(int i, int j) { return j / 2 * 4 + i * 2 + j % 2; }  // of `multiply`
};

// A_ROWS, B_ROWS: k is the contiguous direction of the operand. WIDE: neighbouring columns can be
// written at once.
template <class Step, class Tile, int STAGES, bool A_ROWS, bool B_ROWS, bool WIDE>
struct TensorProduct {
  using Kind = typename Step::Kind;
  using Word = typename Step::Word;
  using Element = typename Kind::Element;
  static constexpr int PARTS = Step::PARTS;
  static constexpr int BK = LINE / int(sizeof(Element)), STEPS = BK / Kind::K;
  static constexpr int A_BOXES = Tile::BM / 64, B_BOXES = Tile::BN / 64;
  static constexpr int A_BYTES = A_BOXES * BOX, B_BYTES = B_BOXES * BOX;  // of one part
  static constexpr int STAGE = PARTS * (A_BYTES + B_BYTES), THREADS = Tile::THREADS + WARPGROUP;
  static constexpr int BYTES = 1024 + STAGES * (STAGE + 2 * int(sizeof(Barrier)));
  u8* stages;      // [STAGES] of [PARTS][A_BOXES] and [PARTS][B_BOXES] boxes
  Barrier* full;   // [STAGES]
  Barrier* empty;  // [STAGES]
  int stage = 0;
  u32 parity = 0;

  SR_FN static void run(const TensorParams& t) {
    if (!is_selected(t.p)) return;
    u8* shared = shared_memory<u8>();
    TensorProduct own;
    own.stages = shared + (1024 - (reinterpret_cast<u64>(shared) & 1023)) % 1024;
    own.full = reinterpret_cast<Barrier*>(own.stages + STAGES * STAGE);
    own.empty = own.full + STAGES;
    if (threadIdx.x == 0) {
      for (int s = 0; s < STAGES; ++s) {
        own.full[s].init(1);
        own.empty[s].init(Tile::THREADS / 32);
      }
      fence_barrier_init();
    }
    __syncthreads();  // the barriers are there
    if (int(threadIdx.x) >= Tile::THREADS) {
      warpgroup_reg_dealloc<40>();
      if (int(threadIdx.x) == Tile::THREADS) own.copy(t);
    } else {
      warpgroup_reg_alloc<232>();
      own.compute(t.p);
    }
  }

  SR_FN void next() {
    if (++stage < STAGES) return;
    stage = 0;
    parity ^= 1;
  }
  SR_FN void copy(const TensorParams& t) {
    const ProductParams& p = t.p;
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      const TileCoord<Step, Tile> at(p, work.tile);
      const int a_z = int(at.batch * p.a_batch) * PARTS, b_z = int(at.batch * p.b_batch) * PARTS;
      for (int k = work.k; k < work.k + work.depth; k += BK) {
        empty[stage].wait(parity ^ 1);
        full[stage].arrive_and_expect(STAGE);
        u8* to = stages + stage * STAGE;
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
          for (int box = 0; box < A_BOXES; ++box, to += BOX)
            load_box(to, t.a, full[stage], A_ROWS ? k : at.row + 64 * box,
                            A_ROWS ? at.row + 64 * box : k, a_z + part);
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
          for (int box = 0; box < B_BOXES; ++box, to += BOX)
            load_box(to, t.b, full[stage], B_ROWS ? k : at.column + 64 * box,
                     B_ROWS ? at.column + 64 * box : k, b_z + part);
        next();
      }
    }
  }

  SR_FN void compute(const ProductParams& p) {
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      Word d[Tile::BN / 2];  // [BN / 8][2][2]
      const int tiles = (work.depth + BK - 1) / BK;
      if constexpr (PARTS == 1) {
        for (int t = 0; t < tiles; ++t) {
          take(d, t > 0);
          warpgroup_wait<1>();
          if (t > 0) release();
          next();
        }
        warpgroup_wait<0>();
        release();
        store(p, d, work);
      } else {
        Word sum[Tile::BN / 2], e[Tile::BN / 2];  // [BN / 8][2][2]
#pragma unroll
        for (int i = 0; i < Tile::BN / 2; ++i) sum[i] = 0;
        take(d, false);
        next();
        int t = 1;
        for (; t + 1 < tiles; t += 2) {  // one tile is computed while the one before is added
          take(e, false);
          add<1>(sum, d);
          next();
          take(d, false);
          add<1>(sum, e);
          next();
        }
        if (t < tiles) {
          take(e, false);
          add<1>(sum, d);
          next();
          add<0>(sum, e);
        } else {
          add<0>(sum, d);
        }
        store(p, sum, work);
      }
    }
  }

  // The sums of the tile of k before the last PENDING.
  template <int PENDING>
  SR_FN void add(Word (&sum)[Tile::BN / 2], const Word (&d)[Tile::BN / 2]) {
    warpgroup_wait<PENDING>();
    release();
#pragma unroll
    for (int i = 0; i < Tile::BN / 2; ++i) sum[i] += d[i];
  }

  // One tile of k, when it is there.
  SR_FN void take(Word (&d)[Tile::BN / 2], bool join) {
    full[stage].wait(parity);
    const u8* as = stages + stage * STAGE + int(threadIdx.x) / WARPGROUP * BOX;
    const u8* bs = stages + stage * STAGE + PARTS * A_BYTES;
    warpgroup_arrive();
    if constexpr (PARTS == 2) {  // small products first; that of the two small parts is left out
      steps(d, as + A_BYTES, bs, join);
      steps(d, as, bs + B_BYTES, true);
    }
    steps(d, as, bs, join || PARTS == 2);
    warpgroup_commit();
  }
  SR_FN static void steps(Word (&d)[Tile::BN / 2], const u8* as, const u8* bs, bool join) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
      warpgroup_mma<Kind, A_ROWS, B_ROWS, Tile::BN>(d, Operand<A_ROWS>::template k_step<Kind>(as, s),
                                               Operand<B_ROWS>::template k_step<Kind>(bs, s),
                                               join || s > 0);
  }

  // The stage before this one may be filled again.
  SR_FN void release() {
    if (threadIdx.x % 32) return;
    empty[(stage + STAGES - 1) % STAGES].arrive();
  }

  SR_FN static void store(const ProductParams& p, Word (&d)[Tile::BN / 2], const WorkTile& work) {
    using Store = Epilogue<Step, Tile, WIDE>;
    if constexpr (Tile::VN == 8) turn(d);
    if (work.split >= 0) {
      Word* to = Store::partial(p, work.tile, work.split);
#pragma unroll
      for (int i = 0; i < Tile::TM; ++i)
#pragma unroll
        for (int j = 0; j < Tile::TN; ++j)
          to[(i * Tile::TN + j) * Tile::THREADS] = d[Tile::at(i, j)];
      return;
    }
    const LinearCombination<typename Step::Algebra> join(p);
    const TileCoord<Step, Tile> at(p, work.tile);
#pragma unroll
    for (int i = 0; i < Tile::TM; ++i)
#pragma unroll
      for (int j = 0; j < Tile::TN; j += Tile::VN) {
        Word run[Tile::VN];  // [VN]
#pragma unroll
        for (int v = 0; v < Tile::VN; ++v) run[v] = d[Tile::at(i, j + v)];
        Store::store_run(p, join, run, at, i, j);
      }
  }

  // Four lanes have two columns each of every eight. Of four such eights each gets one: a
  // transposition in two steps, with the neighbour and with the neighbour's neighbour.
  SR_FN static void turn(Word (&d)[Tile::BN / 2]) {
#pragma unroll
    for (int first = 0; first < Tile::BN / 2; first += 16)
#pragma unroll
      for (int w = 0; w < 4; ++w)
#pragma unroll
        for (int mask = 1; mask <= 2; mask *= 2)
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            const int g = mask == 1 ? 2 * pair : pair;
            Word &x = d[first + 4 * g + w], &y = d[first + 4 * (g + mask) + w];
            const bool upper = int(threadIdx.x) & mask;
            const Word got = shuffle_xor(upper ? x : y, mask);
            if (upper) x = got;
            else y = got;
          }
  }
};

// --- operands as the tensor cores take them ---------------------------------------------------

struct ConvertParams {
  const void* from;       // [batch][rows][k]
  void* to;               // [batch][PARTS][rows][ld] of Element, k side by side
  i64 row, k_step, batch_stride, ld;  // in elements
  i64 k_tiles, row_tiles;
  int rows, k;
};

// Through shared memory, so that reading and writing both go along what is contiguous.
template <class Storage, class Kind, int PARTS>
struct Convert {
  using Element = typename Kind::Element;
  static constexpr int SIDE = 64, THREADS = 256, PITCH = SIDE + 1;  // + 1: no two in one bank

  SR_FN static void run(const ConvertParams& p) {
    const i64 k0 = blockIdx.x % p.k_tiles * SIDE, rest = blockIdx.x / p.k_tiles;
    const i64 row0 = rest % p.row_tiles * SIDE, batch = rest / p.row_tiles;
    const Storage* from = static_cast<const Storage*>(p.from) + batch * p.batch_stride;
    Element* to = static_cast<Element*>(p.to) + batch * PARTS * p.rows * p.ld;
    Storage* tile = shared_memory<Storage>();  // [SIDE of rows][PITCH]
    const int lane = int(threadIdx.x) % SIDE, line = int(threadIdx.x) / SIDE;
    const bool across = p.k_step != 1;  // lanes along the rows
#pragma unroll
    for (int i = line; i < SIDE; i += THREADS / SIDE) {
      const i64 row = row0 + (across ? lane : i), k = k0 + (across ? i : lane);
      if (row < p.rows && k < p.k)
        tile[(row - row0) * PITCH + k - k0] = from[row * p.row + k * p.k_step];
    }
    __syncthreads();  // the tile is whole
#pragma unroll
    for (int i = line; i < SIDE; i += THREADS / SIDE) {
      const i64 row = row0 + i, k = k0 + lane;
      if (row < p.rows && k < p.k) put(p, to + row * p.ld + k, tile[i * PITCH + lane]);
    }
  }

  SR_FN static void put(const ConvertParams& p, Element* to, Storage x) {
    if constexpr (Kind::K == 8) {
      const float high = to_tf32(x);
      *to = high;
      if constexpr (PARTS == 2) to[p.rows * p.ld] = to_tf32(x - high);
    } else {
      *to = x;
    }
  }
};

// Bytes that lie along the rows, aligned: four by four, of four steps of k and four rows.
struct TransposeBytes {
  static constexpr int SIDE = 128, WORDS = SIDE / 4, THREADS = 256, PITCH = WORDS + 1;

  SR_FN static void run(const ConvertParams& p) {
    const i64 k0 = blockIdx.x % p.k_tiles * SIDE, rest = blockIdx.x / p.k_tiles;
    const i64 row0 = rest % p.row_tiles * SIDE, batch = rest / p.row_tiles;
    const u8* from = static_cast<const u8*>(p.from) + batch * p.batch_stride;
    u8* to = static_cast<u8*>(p.to) + batch * p.rows * p.ld;
    u32* tile = shared_memory<u32>();  // [SIDE of rows][PITCH of k]
    const int lane = int(threadIdx.x) % WORDS, line = int(threadIdx.x) / WORDS;
    const i64 row = row0 + 4 * lane;
#pragma unroll
    for (int i = line; i < WORDS; i += THREADS / WORDS) {
      u32 x[4] = {};  // [4 of k], each of four rows
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const i64 k = k0 + 4 * i + q;
        if (k < p.k && row < p.rows)  // there are rows in fours
          x[q] = *reinterpret_cast<const u32*>(from + k * p.k_step + row);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r)
        tile[(4 * lane + r) * PITCH + i] = (x[0] >> 8 * r & 255u) | (x[1] >> 8 * r & 255u) << 8 |
                                           (x[2] >> 8 * r & 255u) << 16 | x[3] >> 8 * r << 24;
    }
    __syncthreads();  // the tile is whole
#pragma unroll
    for (int i = line; i < SIDE; i += THREADS / WORDS)
      if (row0 + i < p.rows && k0 + 4 * lane < p.ld)  // lines end at a multiple of four
        *reinterpret_cast<u32*>(to + (row0 + i) * p.ld + k0 + 4 * lane) = tile[i * PITCH + lane];
  }
};

}  // namespace sr

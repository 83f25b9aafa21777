// Kernels: the product over plus-times on Hopper's tensor cores. The chip's copy engine is the
// loader, its matrix instructions are the multiplier; schedule and epilogue are those of
// product.cuh. A block's warpgroups are specialised: one produces (copies tiles of k to stages),
// two consume (multiply).
#pragma once
#include "epilogue.cuh"
#include "pack.cuh"
#include <hopper.cuh>

namespace sr {

struct TensorParams {
  TensorMap a, b;   // [batch * PARTS][rows][k], in boxes
  ProductParams p;  // a_batch and b_batch are 1, or 0 where the whole batch has one operand
};

// Step policy (steps.cuh) of an epilogue only. PARTS: matrices whose sum an operand is: 2 for
// float32 that is emulated by pairs of tf32. PACKED: C holds truth values, eight to a byte, in the
// order of np.packbits.
template <class A, class Kind_, int PARTS_, bool PACKED_ = false>
struct Tensor {
  using Algebra = A;
  using Kind = Kind_;
  using Word = typename Kind::Sum;
  static constexpr int COLUMNS = 1, PARTS = PARTS_;
  static constexpr bool PACKED = PACKED_;

  SR_FN static Word join(Word x, Word y) { return x + y; }
  SR_FN static typename A::Compute out(Word x, int) {
    if constexpr (Is<Word>::floating) return x;
    else return x & 1 ? -1 : x ? A::add(-1, -1) : 0;  // so many times true, which is all ones
  }
};

// Two consumer warpgroups, each with 64 rows and all columns. VN columns of a thread are adjacent
// when C is written: 2, as warpgroup_mma leaves them, or 8 after lanes have exchanged words.
template <int BN_, int VN_>
struct TensorTile {
  static constexpr int BM = 128, BN = BN_, TM = 2, TN = BN / 4, VN = VN_;
  static_assert(VN == 2 || VN == 8, "two columns, or four times as many");
  static constexpr int THREADS = BM / 64 * WARPGROUP;  // of the consumers
  static_assert(BM % 64 == 0, "a warpgroup has 64 rows");

  SR_FN static int row(int i) {
    const int t = int(threadIdx.x);
    return t / 32 * 16 + t % 32 / 4 + 8 * i;
  }
  SR_FN static int column(int j) { return j / VN * 4 * VN + int(threadIdx.x) % 4 * VN + j % VN; }
  // Accumulator [i][j] in warpgroup_mma's order, [BN / 8][2 rows][2 columns].
  SR_FN static constexpr int at(int i, int j) { return j / 2 * 4 + i * 2 + j % 2; }
};

// A_K_MAJOR, B_K_MAJOR: k is the contiguous direction of the operand. VECTOR: adjacent columns of C
// can be written at once.
//
// A stage goes through four states, by its two barriers: empty (consumers have arrived at
// empty[s]), being filled (the producer announced its bytes to full[s]), full (they have landed),
// being read.
template <class Step, class Tile, int STAGES, bool A_K_MAJOR, bool B_K_MAJOR, bool VECTOR>
struct TensorProduct {
  using Kind = typename Step::Kind;
  using Word = typename Step::Word;
  using Element = typename Kind::Element;
  static constexpr int PARTS = Step::PARTS;
  static constexpr int BK = LINE / int(sizeof(Element)), STEPS = BK / Kind::K;
  static constexpr int A_BOXES = Tile::BM / 64, B_BOXES = Tile::BN / 64;
  static constexpr int A_BYTES = A_BOXES * BOX, B_BYTES = B_BOXES * BOX;  // of one part
  static constexpr int STAGE = PARTS * (A_BYTES + B_BYTES), THREADS = Tile::THREADS + WARPGROUP;
  static_assert(STAGES >= 2, "a stage is filled while another one is read");
  static_assert(PARTS == 1 || PARTS == 2, "an operand is one matrix or the sum of two");
  // Boxes are aligned to 1024 bytes.
  static constexpr int BYTES = 1024 + STAGES * (STAGE + 2 * int(sizeof(Barrier)));
  u8* stages;      // [STAGES] of [PARTS][A_BOXES] and [PARTS][B_BOXES] boxes
  Barrier* full;   // [STAGES]: the bytes of a stage have landed
  Barrier* empty;  // [STAGES]: all consumers have read a stage
  int stage = 0;   // of this thread's next tile of k
  u32 parity = 0;  // of that stage's phase: it flips when stages wrap around

  SR_FN static void run(const TensorParams& t) {
    if (!is_selected(t.p)) return;
    // --- barriers and stages in shared memory
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
    __syncthreads();  // between initialising the barriers and using them
    // --- specialisation: the last warpgroup produces, with few registers, the others consume
    if (int(threadIdx.x) >= Tile::THREADS) {
      warpgroup_reg_dealloc<40>();
      if (int(threadIdx.x) == Tile::THREADS) own.produce(t);
    } else {
      warpgroup_reg_alloc<232>();
      own.consume(t.p);
    }
  }

  SR_FN void next_stage() {
    if (++stage < STAGES) return;
    stage = 0;
    parity ^= 1;
  }
  // One thread: all tiles of k of all work tiles of this block, in order.
  SR_FN void produce(const TensorParams& t) {
    const ProductParams& p = t.p;
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      const TileCoord<Step, Tile> at(p, work.tile);
      const int a_z = int(at.batch * p.a_batch) * PARTS, b_z = int(at.batch * p.b_batch) * PARTS;
      for (int k = work.k; k < work.k + work.depth; k += BK) {
        empty[stage].wait(parity ^ 1);  // the first round passes: no phase has ended yet
        full[stage].arrive_and_expect(STAGE);
        u8* to = stages + stage * STAGE;
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
          for (int box = 0; box < A_BOXES; ++box, to += BOX)
            load_box(to, t.a, full[stage], A_K_MAJOR ? k : at.row + 64 * box,
                     A_K_MAJOR ? at.row + 64 * box : k, a_z + part);
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
          for (int box = 0; box < B_BOXES; ++box, to += BOX)
            load_box(to, t.b, full[stage], B_K_MAJOR ? k : at.column + 64 * box,
                     B_K_MAJOR ? at.column + 64 * box : k, b_z + part);
        next_stage();
      }
    }
  }

  // A consumer warpgroup: the products of its 64 rows.
  SR_FN void consume(const ProductParams& p) {
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      Word d[Tile::BN / 2];  // [BN / 8][2][2]
      const int tiles = (work.depth + BK - 1) / BK;
      if constexpr (PARTS == 1) {  // tile t - 1 is released while tile t is multiplied
        for (int t = 0; t < tiles; ++t) {
          take(d, t > 0);
          warpgroup_wait<1>();  // tile t - 1 is done, tile t under way
          if (t > 0) release();
          next_stage();
        }
        warpgroup_wait<0>();
        release();
        store(p, d, work);
      } else {
        // d and e alternate: tensor cores multiply into one while the other is added to the sum
        Word sum[Tile::BN / 2], e[Tile::BN / 2];  // [BN / 8][2][2]
#pragma unroll
        for (int i = 0; i < Tile::BN / 2; ++i) sum[i] = 0;
        take(d, false);
        next_stage();
        int t = 1;
        for (; t + 1 < tiles; t += 2) {  // one tile is multiplied, one added
          take(e, false);
          add<1>(sum, d);
          next_stage();
          take(d, false);
          add<1>(sum, e);
          next_stage();
        }
        if (t < tiles) {
          take(e, false);
          add<1>(sum, d);
          next_stage();
          add<0>(sum, e);
        } else {
          add<0>(sum, d);
        }
        store(p, sum, work);
      }
    }
  }

  // Add the sums of the tile of k before the last PENDING ones: tensor cores truncate when they add
  // to a large sum, so sums of pairs are added in float32 here.
  template <int PENDING>
  SR_FN void add(Word (&sum)[Tile::BN / 2], const Word (&d)[Tile::BN / 2]) {
    warpgroup_wait<PENDING>();
    release();
#pragma unroll
    for (int i = 0; i < Tile::BN / 2; ++i) sum[i] += d[i];
  }

  // Start the products of one tile of k, as soon as its bytes have landed.
  SR_FN void take(Word (&d)[Tile::BN / 2], bool accumulate) {
    full[stage].wait(parity);
    const u8* as = stages + stage * STAGE + int(threadIdx.x) / WARPGROUP * BOX;
    const u8* bs = stages + stage * STAGE + PARTS * A_BYTES;
    warpgroup_arrive();
    if constexpr (PARTS == 2) {  // small products first; that of both small parts is below rounding
      k_steps(d, as + A_BYTES, bs, accumulate);
      k_steps(d, as, bs + B_BYTES, true);
    }
    k_steps(d, as, bs, accumulate || PARTS == 2);
    warpgroup_commit();
  }
  // Its k steps.
  SR_FN static void k_steps(Word (&d)[Tile::BN / 2], const u8* as, const u8* bs, bool accumulate) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
      warpgroup_mma<Kind, A_K_MAJOR, B_K_MAJOR, Tile::BN>(
          d, Operand<A_K_MAJOR>::template k_step<Kind>(as, s),
          Operand<B_K_MAJOR>::template k_step<Kind>(bs, s), accumulate || s > 0);
  }

  // The stage before this one may be filled again: one arrival for each warp.
  SR_FN void release() {
    if (threadIdx.x % 32) return;
    empty[(stage + STAGES - 1) % STAGES].arrive();
  }

  SR_FN static void store(const ProductParams& p, Word (&d)[Tile::BN / 2], const WorkTile& work) {
    using Store = Epilogue<Step, Tile, VECTOR>;
    if constexpr (!Is<Word>::floating) {
      if (work.split < 0) return store_truths(p, d, TileCoord<Step, Tile>(p, work.tile));
    }
    if constexpr (Tile::VN == 8) transpose(d);
    if (work.split >= 0) {
      Word* to = Store::partial(p, work.tile, work.split);
#pragma unroll
      for (int i = 0; i < Tile::TM; ++i)
#pragma unroll
        for (int j = 0; j < Tile::TN; ++j)
          to[(i * Tile::TN + j) * Tile::THREADS] = d[Tile::at(i, j)];
      return;
    }
    const LinearCombination<typename Step::Algebra> combine(p);
    const TileCoord<Step, Tile> at(p, work.tile);
#pragma unroll
    for (int i = 0; i < Tile::TM; ++i)
#pragma unroll
      for (int j = 0; j < Tile::TN; j += Tile::VN) {
        Word run[Tile::VN];  // [VN]
#pragma unroll
        for (int v = 0; v < Tile::VN; ++v) run[v] = d[Tile::at(i, j + v)];
        Store::store_run(p, combine, run, at, i, j);
      }
  }

  // Truth values: they are packed before lanes exchange any. Of every 64 columns of a row, each of
  // its four lanes gets 16.
  SR_FN static void store_truths(const ProductParams& p, const Word (&d)[Tile::BN / 2],
                                 const TileCoord<Step, Tile>& at) {
    const int q = int(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < Tile::TM; ++i)
#pragma unroll
      for (int first = 0; first < Tile::BN; first += 64) {
        u32 words[2];  // [2] of 32 columns, of which this lane knows 8
#pragma unroll
        for (int w = 0; w < 2; ++w) {
          u32 word = 0;
#pragma unroll
          for (int e = 0; e < 4; ++e)  // eights
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const Word x = d[Tile::at(i, (first / 8 + 4 * w + e) * 2 + c)];
              word |= (u32(Step::out(x, 0)) & 1u) << (8 * e + 1 - c);
            }
          words[w] = word << (6 - 2 * q);
        }
        u32 mine = (q & 2 ? words[1] : words[0]) |
                   shuffle_xor(q & 2 ? words[0] : words[1], 2);
        mine |= shuffle_xor(mine, 1);
        store_sixteen(p, at, at.row + Tile::row(i), at.column + first + 16 * q,
                      q & 1 ? mine >> 16 : mine & 0xffffu);
      }
  }

  // Columns from a multiple of 16 on, as packed bits, the first one in bit 7.
  SR_FN static void store_sixteen(const ProductParams& p, const TileCoord<Step, Tile>& at, int row,
                                  int column, u32 bits) {
    if (row >= p.m || column >= p.n) return;
    u8* c = static_cast<u8*>(p.c) + at.batch * p.c_batch + row * p.c_m;
    if constexpr (Step::PACKED) {
      c += column / 8;
      if constexpr (VECTOR) {
        u16* to = reinterpret_cast<u16*>(c);
        *to = u16(p.mode & READ_C ? u32(Step::Algebra::add(int(bits), int(*to))) : bits);
      } else {
        for (int e = 0; e < 2 && column + 8 * e < p.n; ++e) {
          const u32 x = bits >> 8 * e;
          c[e] = u8(p.mode & READ_C ? u32(Step::Algebra::add(int(x), int(c[e]))) : x);
        }
      }
    } else {
      Pack<u32, 4> bytes;  // [4] of four columns
#pragma unroll
      for (int e = 0; e < 4; ++e) bytes.x[e] = spread(bits >> (8 * (e / 2) + 4 - 4 * (e % 2)));
      if constexpr (VECTOR) {
        auto* to = reinterpret_cast<Pack<u32, 4>*>(c + column);
        if (p.mode & READ_C) {
          const Pack<u32, 4> old = *to;
#pragma unroll
          for (int e = 0; e < 4; ++e)
            bytes.x[e] = u32(Step::Algebra::add(int(bytes.x[e]), int(ones(old.x[e]))));
        }
        *to = bytes;
      } else {
        const LinearCombination<typename Step::Algebra> combine(p);
#pragma unroll
        for (int e = 0; e < 16; ++e)
          if (column + e < p.n) {
            u8* to = c + (column + e) * p.c_n;
            *to = combine(bytes.x[e / 4] >> 8 * (e % 4) & 1u ? -1 : 0, *to);
          }
      }
    }
  }

  // Four lanes have two columns each of every eight. Afterwards, of four such eights each lane has
  // a whole one: a transposition of 4 x 4 pairs in two exchanges, with lanes ^ 1 and ^ 2.
  SR_FN static void transpose(Word (&d)[Tile::BN / 2]) {
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

// --- layout and conversion of operands ---------------------------------------------------------

struct ConvertParams {
  const void* from;       // [batch][rows][k]
  void* to;               // [batch][PARTS][rows][ld] of Element, k contiguous
  i64 row, k_step, batch_stride, ld;  // strides of `from`, leading dimension of `to`, in elements
  i64 k_tiles, row_tiles;
  int rows, k;
};

// Kernel: an operand whose layout or dtype the copy engine does not take, k-major and rounded to
// Kind. Through shared memory, so that reads and writes are both contiguous.
template <class Storage, class Kind, int PARTS>
struct Convert {
  using Element = typename Kind::Element;
  static constexpr int SIDE = 64, THREADS = 256, PITCH = SIDE + 1;  // + 1: no bank conflicts

  SR_FN static void run(const ConvertParams& p) {
    const i64 k0 = blockIdx.x % p.k_tiles * SIDE, rest = blockIdx.x / p.k_tiles;
    const i64 row0 = rest % p.row_tiles * SIDE, batch = rest / p.row_tiles;
    const Storage* from = static_cast<const Storage*>(p.from) + batch * p.batch_stride;
    Element* to = static_cast<Element*>(p.to) + batch * PARTS * p.rows * p.ld;
    Storage* tile = shared_memory<Storage>();  // [SIDE of rows][PITCH]
    const int lane = int(threadIdx.x) % SIDE, line = int(threadIdx.x) / SIDE;
    const bool across = p.k_step != 1;  // k is not contiguous: lanes lie along the rows
#pragma unroll
    for (int i = line; i < SIDE; i += THREADS / SIDE) {
      const i64 row = row0 + (across ? lane : i), k = k0 + (across ? i : lane);
      if (row < p.rows && k < p.k)
        tile[(row - row0) * PITCH + k - k0] = from[row * p.row + k * p.k_step];
    }
    __syncthreads();  // between storing the tile and reading it
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

}  // namespace sr

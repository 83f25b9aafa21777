// Kernels: the product over plus-times on Hopper's tensor cores. The chip's copy engine is the
// loader, its matrix instructions are the multiplier; schedule and epilogue are those of
// product.cuh. A block's warps are specialised: the last ones produce (copy tiles of k to stages),
// one or two warpgroups consume (multiply).
#pragma once
#include "doubles.cuh"
#include "epilogue.cuh"
#include "pack.cuh"
#include "scan.cuh"
#include <hopper.cuh>

namespace sr {

// --- scaled rows -------------------------------------------------------------------------------

struct RowSize {
  u32 greatest;  // the bits of the greatest magnitude; it is at most 2^127, and at least 2^-50 or 0
  float sum;     // of all magnitudes
};

// 16-bit floats hold float32 only in a narrow range: rows of an operand are multiplied by powers of
// two, 2^s, after which the greatest magnitude lies in 2^14 .. 2^15.
SR_FN int scale_exponent(u32 greatest) {
  const int s = 14 + 127 - int(greatest >> 23);
  return greatest == 0 ? 0 : s > 64 ? 64 : s;
}
// 2^s, for |s| <= 126.
SR_FN float power_of_2(int s) { return bits_as<float>(u32(127 + s) << 23); }

// The unit of small parts, which would lie below the normal numbers of 16 bits. An entry that is not
// 0 but less than LOSSY (scaled) loses up to LOSS.
constexpr float SMALL_UNIT = 1 / 2048.0f, LOSSY = 1 / 4096.0f, LOSS = LOSSY * LOSSY * LOSSY;
static_assert(LOSS == 0x1p-36f, "half of the least number of 16 bits, in units of SMALL_UNIT");

struct TensorParams {
  TensorMap a, b;   // [batch * PARTS][rows][k], in boxes
  TensorMap c;      // [batch][m][n], if it is stored in boxes
  ProductParams p;  // a_batch and b_batch are 1, or 0 where the whole batch has one operand
  const RowSize *a_sizes, *b_sizes;  // [batch][rows], where rows are scaled (Split)
  // Of Screened, which has no C:
  const float* column;  // [tiles_n * BN]: what is added to the entries of a column; ...
  const float* bound;   // [m]: ... what they must not exceed then
  u32* count;           // [m]: += the entries that do not
  u32* candidates;      // [m][capacity]: the columns of the first `capacity` of these
  i64 capacity;
  // Of counts of bits: what they are multiplied by, before they are subtracted from `column`, ...
  const float* scale;  // [m]
  const float* least;  // [tiles_n]: ... which in a tile is this much, or more
};

// Step policy (steps.cuh) of an epilogue only. PARTS: matrices whose sum an operand is: 2 for
// float32 that is emulated by pairs of shorter floats. PACKED: C holds truth values, eight to a byte,
// in the order of np.packbits.
template <class A, class Kind_, int PARTS_, bool PACKED_ = false>
struct Tensor {
  using Algebra = A;
  using Kind = Kind_;
  using Word = typename Kind::Sum;
  static constexpr int COLUMNS = 1, PARTS = PARTS_;
  static constexpr bool PACKED = PACKED_;
  static constexpr bool SCALED = PARTS == 2 && Is<typename Kind::Element>::half;
  static constexpr float SMALL = SCALED ? SMALL_UNIT : 1;
  static constexpr bool CERTIFIES = false, SCREENS = false;

  SR_FN static Word join(Word x, Word y) { return x + y; }
  SR_FN static typename A::Compute out(Word x, int) {
    if constexpr (Is<Word>::floating) return x;
    else return x & 1 ? -1 : x ? A::add(-1, -1) : 0;  // so many times true, which is all ones
  }
};

// Not a product: whether sums of magnitudes at some k, of rows that Split has scaled, are large enough.
template <class A>
struct Certificate : Tensor<A, Halves, 1> {
  static constexpr bool CERTIFIES = true;
};

// Not a product: which of its entries are at most a bound of their row. What is added to columns
// goes through shared memory, and is on its way while a tile is multiplied.
template <class A, class Kind>
struct Screened : Tensor<A, Kind, 1> {
  static constexpr bool SCREENS = true;
};

// One or two consumer warpgroups, each with 64 rows and all columns. VN columns of a thread are
// adjacent when C is written: 2, as warpgroup_mma leaves them, or 8 after lanes have exchanged words.
template <int BM_, int BN_, int VN_>
struct TensorTile {
  static constexpr int BM = BM_, BN = BN_, TM = 2, TN = BN / 4, VN = VN_;
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
// can be written at once; STORE_BOXES: the copy engine writes C, of 16-bit elements. CLUSTER: blocks
// of a cluster, whose tiles lie below each other: each loads a part of their common columns of B, for
// all of them.
//
// A stage goes through four states, by its two barriers: empty (consumers have arrived at
// empty[s]), being filled (the producer announced its bytes to full[s]), full (they have landed),
// being read.
template <class Step, class Tile, int STAGES, int CLUSTER, bool A_K_MAJOR, bool B_K_MAJOR,
          bool VECTOR, int STORE_BOXES, bool ACROSS>
struct TensorProduct {
  using Kind = typename Step::Kind;
  using Word = typename Step::Word;
  using Element = typename Kind::Element;
  static constexpr int PARTS = Step::PARTS;
  static constexpr int BK = LINE / int(sizeof(Element)), STEPS = BK / Kind::K;
  static constexpr int B_LINES = Tile::BN / CLUSTER;  // that this block loads
  static constexpr int A_BYTES = Tile::BM * LINE, B_BYTES = Tile::BN * LINE;  // of one part
  static constexpr int STAGE = PARTS * (A_BYTES + B_BYTES);
  static_assert(STAGES >= 2, "a stage is filled while another one is read");
  static_assert(PARTS == 1 || PARTS == 2, "an operand is one matrix or the sum of two");
  static_assert(B_K_MAJOR || B_LINES % 64 == 0, "blocks of a cluster load whole boxes");
  // Whether registers are handed from the producer to the consumers, which have many accumulators:
  // then it is a warpgroup, else a warp.
  static constexpr bool HANDS =
      PARTS == 2 || Tile::BN > 128 || Tile::BM > 128 || sizeof(Word) == 8;
  static constexpr int HELD = Tile::BM > 128 ? 152 : 232;  // registers of a consumer then
  static constexpr int THREADS = Tile::THREADS + (HANDS ? WARPGROUP : 32);
  // whether the left operand goes through registers, since the instruction does not transpose it
  static constexpr bool FROM_REGISTERS = !A_K_MAJOR && sizeof(Element) == 4;
  // Whether C is rounded first, and written while the block's next tile is multiplied: large tiles
  // of 16-bit elements. Of small ones a block seldom has another.
  static constexpr bool DEFERS = STORE_BOXES > 0 && HANDS;
  static constexpr int BOXES = Tile::BN / 64;  // of a warpgroup's 64 rows
  static_assert(!FROM_REGISTERS || PARTS == 1, "parts are copied along k");
  // Boxes are aligned to 1024 bytes.
  static constexpr int OUTGOING =
      Tile::BM / 64 * (Step::SCREENS ? 2 * Tile::BN * 4
                       : ACROSS ? Tile::BN * LINE : STORE_BOXES * BOX);
  static constexpr int BYTES = 1024 + OUTGOING + STAGES * (STAGE + 2 * int(sizeof(Barrier)));
  u8* stages;      // [STAGES] of [PARTS][BM] and [PARTS][BN] lines
  u8* outgoing;    // [BM / 64][STORE_BOXES] boxes of C; of a screen [BM / 64][2][BN] floats
  Barrier* full;   // [STAGES]: the bytes of a stage have landed
  Barrier* empty;  // [STAGES]: all consumers, of all blocks of the cluster, have read a stage
  int stage = 0;   // of this thread's next tile of k
  u32 parity = 0;  // of that stage's phase: it flips when stages wrap around
  int warpgroup = 0;  // this thread's, the same number in all lanes for the compiler, too
  int screened = 0;  // which copy of columns' numbers is next

  SR_FN static void run(const TensorParams& t) {
    // --- barriers and stages in shared memory
    u8* shared = shared_memory<u8>();
    TensorProduct own;
    own.stages = shared + (1024 - (reinterpret_cast<u64>(shared) & 1023)) % 1024;
    if constexpr (sizeof(Word) < 8) own.stages = kept(own.stages);
    own.outgoing = own.stages + STAGES * STAGE;
    own.full = reinterpret_cast<Barrier*>(own.outgoing + OUTGOING);
    own.empty = own.full + STAGES;
    if (int(threadIdx.x) == Tile::THREADS) {
      prefetch_map(t.a);
      prefetch_map(t.b);
      if constexpr (STORE_BOXES > 0 || ACROSS) prefetch_map(t.c);
      for (int s = 0; s < STAGES; ++s) {
        own.full[s].init(1);
        own.empty[s].init(CLUSTER * Tile::THREADS / 32);
      }
      fence_barrier_init();
    }
    // between initialising the barriers and using them; the producer itself need not wait
    if constexpr (CLUSTER > 1) cluster_sync();
    else if (int(threadIdx.x) >= Tile::THREADS) block_arrive<THREADS>();
    else block_sync<THREADS>();
    wait_for_launch();
    launch_dependents();
    if (!is_selected(t.p)) return;
    // --- specialisation: the last warps produce, with few registers, the others consume
    if (int(threadIdx.x) >= Tile::THREADS) {
      if constexpr (HANDS) warpgroup_reg_dealloc<40>();
      if (int(threadIdx.x) == Tile::THREADS) own.produce(t);
    } else {
      if constexpr (HANDS) warpgroup_reg_alloc<HELD>();
      own.warpgroup = int(shuffle(threadIdx.x / WARPGROUP, 0));
      own.consume(t);
    }
    if constexpr (CLUSTER > 1) cluster_sync();  // no block leaves while others use its barriers
  }

  SR_FN void next_stage() {
    if (++stage < STAGES) return;
    stage = 0;
    parity ^= 1;
  }
  // One thread: all tiles of k of all work tiles of this block, in order.
  SR_FN void produce(const TensorParams& t) {
    const ProductParams& p = t.p;
    const int part_of_b = CLUSTER > 1 ? int(block_of_cluster()) * B_LINES : 0;
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      const TileCoord<Step, Tile> at(p, work.tile);
      const int a_z = int(at.batch * p.a_batch) * PARTS, b_z = int(at.batch * p.b_batch) * PARTS;
      for (int k = work.k; k < work.k + work.depth; k += BK) {
        empty[stage].wait(parity ^ 1);  // the first round passes: no phase has ended yet
        full[stage].arrive_and_expect(STAGE);
        u8* as = stages + stage * STAGE;
        u8* bs = as + PARTS * A_BYTES + part_of_b * LINE;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
          load<1, Tile::BM, A_K_MAJOR>(as + part * A_BYTES, t.a, at.row, k, a_z + part);
          load<CLUSTER, B_LINES, B_K_MAJOR>(bs + part * B_BYTES, t.b, at.column + part_of_b, k,
                                            b_z + part);
        }
        next_stage();
      }
    }
  }
  // Load ROWS rows of one tile of k.
  template <int BLOCKS, int ROWS, bool K_MAJOR>
  SR_FN void load(u8* to, const TensorMap& from, int row, int k, int z) {
    if constexpr (K_MAJOR) {
      load_box<BLOCKS>(to, from, full[stage], k, row, z);
    } else {
#pragma unroll
      for (int i = 0; i < ROWS; i += BK)  // a line holds as many rows
        load_box<BLOCKS>(to + i * LINE, from, full[stage], row + i, k, z);
    }
  }

  // A consumer warpgroup: the products of its 64 rows.
  SR_FN void consume(const TensorParams& t) {
    const ProductParams& p = t.p;
    // of the tile before: they are appended, or written, while this one is multiplied
    [[maybe_unused]] Hits hits{};
    [[maybe_unused]] Rounded rounded;
    if constexpr (DEFERS) rounded.row = -1;
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      [[maybe_unused]] Limits limits;
      if constexpr (Step::SCREENS) limits = limits_of(t, work);
      TileCoord<Step, Tile> at(p, work.tile);
      Word d[Tile::BN / 2];  // [BN / 8][2][2]
      const int tiles = (work.depth + BK - 1) / BK;
      if constexpr (sizeof(Word) == 8) {
        multiply_doubles(d, tiles);
        store(t, d, work, TileCoord<Step, Tile>(p, work.tile));
      } else if constexpr (FROM_REGISTERS) {
        u32 even[STEPS][4], odd[STEPS][4];  // [STEPS][4] of tiles of k in turn
        tile_from_registers(d, even, false);
#pragma unroll 1
        for (int i = 1; i < tiles; ++i) {
          tile_from_registers(d, odd, true);
          if (++i == tiles) break;
          tile_from_registers(d, even, true);
        }
        warpgroup_wait<0>();
        release();
        store(t, d, work, at);
      } else if constexpr (PARTS == 1) {  // tile i - 1 is released while tile i is multiplied
        take();
        k_steps(d, 0, 0, false);  // apart, so that the compiler needs no copies of d
        warpgroup_commit();
        next_stage();
        if constexpr (Step::SCREENS) append(t, hits);
        if constexpr (DEFERS) {
          write_boxes(t, rounded, 0);
          int tile = work.tile;  // its divisions here, while tensor cores multiply and boxes are read
          pin(tile);
          at = TileCoord<Step, Tile>(p, tile);
          pin(at.row);
          pin(at.column);
          write_boxes(t, rounded, STORE_BOXES);
        }
#pragma unroll 1
        for (int i = 1; i < tiles; ++i) {
          take();
          k_steps(d, 0, 0, true);
          warpgroup_commit();
          warpgroup_wait<1>();  // tile i - 1 is done, tile i under way
          release();
          next_stage();
        }
        warpgroup_wait<0>();
        release();
        if constexpr (Step::SCREENS) {
          screen(hits, t, d, work, limits);
        } else if constexpr (DEFERS) {
          const bool follows = index + int(gridDim.x) < work_tiles(p);
          const bool defers = follows && work.split < 0 && p.mode == 0;
          rounded.round(d, at);  // first, or the compiler puts products in sequence
          if (!defers) {
            store(t, d, work, at);
            rounded.row = -1;
          }
        } else {
          store(t, d, work, at);
        }
      } else {
        // Tensor cores truncate when they add to a large sum: so the products of the large parts are
        // added in float32 here, tile by tile, while tensor cores multiply the small parts, whose sum
        // is small.
        Word sum[Tile::BN / 2], small[Tile::BN / 2];  // [BN / 8][2][2]
#pragma unroll
        for (int e = 0; e < Tile::BN / 2; ++e) sum[e] = 0;
        for (int i = 0; i < tiles; ++i) {
          take();
          k_steps(d, 0, 0, false);
          warpgroup_commit();
          k_steps(small, A_BYTES, 0, i > 0);
          k_steps(small, 0, B_BYTES, true);
          warpgroup_commit();
          warpgroup_wait<1>();  // all but the small products of this tile
          if (i > 0) release();
#pragma unroll
          for (int e = 0; e < Tile::BN / 2; ++e) sum[e] += d[e];
          next_stage();
        }
        warpgroup_wait<0>();
        release();
#pragma unroll
        for (int e = 0; e < Tile::BN / 2; ++e) sum[e] += small[e] * Step::SMALL;
        store(t, sum, work, at);
      }
    }
    if constexpr (Step::SCREENS) append(t, hits);
    if constexpr (STORE_BOXES > 0 || ACROSS) {
      if (threadIdx.x % WARPGROUP == 0) store_wait<0>();  // no block leaves while its boxes are read
    }
  }

  // The products of all tiles of k by warps of their own.
  SR_FN void multiply_doubles(Word (&d)[Tile::BN / 2], int tiles) {
    DoublesProduct<A_K_MAJOR, B_K_MAJOR, Tile::BN> warp;
    constexpr int LAST = warp.PARTS - 1;
#pragma unroll
    for (int e = 0; e < Tile::BN / 2; ++e) d[e] = 0;
    warp.start();
    full[stage].wait(parity);
    warp.load(0, stages + stage * STAGE, stages + stage * STAGE + A_BYTES);
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
      const u8* as = stages + stage * STAGE;
#pragma unroll
      for (int part = 0; part < LAST; ++part) {
        warp.load(part + 1, as, as + A_BYTES);
        warp.multiply(d, part);
      }
      next_stage();
      if (i + 1 < tiles) {
        full[stage].wait(parity);
        warp.load(0, stages + stage * STAGE, stages + stage * STAGE + A_BYTES);
      }
      warp.multiply(d, LAST);
      __syncwarp();  // between this warp's reads of the tile and its release
      release();
    }
  }

  // Wait until the bytes of a tile of k have landed, and let products of it follow.
  SR_FN void take() {
    full[stage].wait(parity);
    warpgroup_arrive();
  }
  // The products of one tile of k, of parts that begin at these bytes.
  SR_FN void k_steps(Word (&d)[Tile::BN / 2], int a_part, int b_part, bool accumulate) {
    const u8* of_stage = stages + stage * STAGE;
    const Matrix a = Matrix::of<A_K_MAJOR>(of_stage + a_part + warpgroup * BOX);
    const Matrix b = Matrix::of<B_K_MAJOR>(of_stage + PARTS * A_BYTES + b_part);
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
      warpgroup_mma<Kind, A_K_MAJOR, B_K_MAJOR, Tile::BN>(
          d, a + Operand<A_K_MAJOR>::template k_step<Kind>(s),
          b + Operand<B_K_MAJOR>::template k_step<Kind>(s), accumulate || s > 0);
  }

  // One tile of k, whose left operand lies across k. The tile before is released, if there is one.
  SR_FN void tile_from_registers(Word (&d)[Tile::BN / 2], u32 (&a)[STEPS][4], bool accumulate) {
    const int lane = int(threadIdx.x) % 32, q = lane % 4, odd = q % 2;
    const int row = int(threadIdx.x) / 32 * 16 + lane / 4;  // and row + 8, of k q and q + 4
    const u8* as = stages + stage * STAGE + row / BK * (BK * LINE);
    const Matrix b = Matrix::of<true>(stages + stage * STAGE + A_BYTES);
    full[stage].wait(parity);
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        u32 x[2];  // [2 of k]: lanes of odd q take the second one first, or two would meet in a bank
#pragma unroll
        for (int e = 0; e < 2; ++e)
          x[e] = *reinterpret_cast<const u32*>(
              as + swizzled(u32((s * 8 + q + 4 * (e ^ odd)) * LINE + (row % BK + 8 * i) * 4)));
        a[s][i] = odd ? x[1] : x[0];
        a[s][2 + i] = odd ? x[0] : x[1];
      }
    warpgroup_arrive();
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
      warpgroup_mma<Kind, Tile::BN>(d, a[s], b + Operand<true>::template k_step<Kind>(s),
                                    accumulate || s > 0);
    warpgroup_commit();
    if (accumulate) {
      warpgroup_wait<1>();  // the tile before is done, this one under way
      release();
    }
    next_stage();
  }

  // The stage before this one may be filled again: one arrival for each warp and block.
  SR_FN void release() {
    Barrier& before = empty[stage == 0 ? STAGES - 1 : stage - 1];
    const u32 lane = threadIdx.x % 32;
    if constexpr (CLUSTER > 1) {
      if (lane < CLUSTER) before.arrive_at(lane);
    } else {
      if (lane == 0) before.arrive();
    }
  }

  SR_FN void store(const TensorParams& t, Word (&d)[Tile::BN / 2], const WorkTile& work,
                   const TileCoord<Step, Tile>& at) {
    const ProductParams& p = t.p;
    if constexpr (Step::CERTIFIES) return certify(t, d, at);
    if constexpr (Step::SCALED) unscale(t, d, at);
    if constexpr (STORE_BOXES > 0 || ACROSS) {
      if (ACROSS || work.split < 0)
        return p.mode ? store_words<true>(t, d, at) : store_words<false>(t, d, at);
    }
    using Store = Epilogue<Step, Tile, VECTOR>;
    if constexpr (!Is<Word>::floating) {
      if (work.split < 0) return store_truths(p, d, at);
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
  // its four lanes gets 16 as a piece.
  SR_FN static void store_truths(const ProductParams& p, const Word (&d)[Tile::BN / 2],
                                 const TileCoord<Step, Tile>& at) {
    const int q = int(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < Tile::TM; ++i) {
      u32 pieces[Tile::BN / 64];  // [BN / 64]
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
        pieces[first / 64] = q & 1 ? mine >> 16 : mine & 0xffffu;
      }
      if constexpr (VECTOR || Step::PACKED) {
#pragma unroll
        for (int g = 0; g < Tile::BN / 64; ++g)
          store_piece(p, at, at.row + Tile::row(i), at.column + 64 * g + 16 * q, pieces[g]);
      } else {
        store_bytes(p, at, at.row + Tile::row(i) - int(threadIdx.x) % 32 / 4, pieces);
      }
    }
  }

  // 16 columns from a multiple of 16 on, the first one in bit 7: as bits, or as bytes at once.
  SR_FN static void store_piece(const ProductParams& p, const TileCoord<Step, Tile>& at, int row,
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
      auto* to = reinterpret_cast<Pack<u32, 4>*>(c + column);
      if (p.mode & READ_C) {
        const Pack<u32, 4> old = *to;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          bytes.x[e] = u32(Step::Algebra::add(int(bytes.x[e]), int(ones(old.x[e]))));
      }
      *to = bytes;
    }
  }

  // The pieces of the eight rows of a warp, as bytes that lie anywhere: a row at a time, so that
  // lanes write neighbours.
  SR_FN static void store_bytes(const ProductParams& p, const TileCoord<Step, Tile>& at, int row0,
                                const u32 (&pieces)[(Tile::BN + 63) / 64]) {
    const LinearCombination<typename Step::Algebra> combine(p);
    const int lane = int(threadIdx.x) % 32;
    for (int t = 0; t < 8 && row0 + t < p.m; ++t) {
      u8* c = static_cast<u8*>(p.c) + at.batch * p.c_batch + (row0 + t) * p.c_m;
#pragma unroll
      for (int v = 0; v < Tile::BN / 32; ++v) {
        const u32 piece = shuffle(pieces[v / 2], 4 * t + v % 2 * 2 + lane / 16);
        const int column = at.column + 32 * v + lane;
        if (column >= p.n) continue;
        u8* to = c + column * p.c_n;
        *to = combine(piece >> (lane % 16 ^ 7) & 1u ? -1 : 0, *to);
      }
    }
  }

  // f(entry of d, sizes of its row of A and its column of B), for all that are inside of C.
  template <class F>
  SR_FN static void with_sizes(const TensorParams& t, Word (&d)[Tile::BN / 2],
                               const TileCoord<Step, Tile>& at, F f) {
    const ProductParams& p = t.p;
    const RowSize* of_a = t.a_sizes + at.batch * p.a_batch * p.m;  // [m]
    const RowSize* of_b = t.b_sizes + at.batch * p.b_batch * p.n;  // [n]
    RowSize rows[2] = {};                                          // [2 rows]
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (at.row + Tile::row(i) < p.m) rows[i] = of_a[at.row + Tile::row(i)];
#pragma unroll
    for (int e = 0; e < Tile::BN / 2; e += 4)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = at.column + e * 2 + int(threadIdx.x) % 4 * 2 + j;
        if (column >= p.n) continue;
        const RowSize of_column = of_b[column];
#pragma unroll
        for (int i = 0; i < 2; ++i) f(d[e + 2 * i + j], rows[i], of_column);
      }
  }
  // Undo the scaling of rows of both operands, in two factors, so that each is a float.
  SR_FN static void unscale(const TensorParams& t, Word (&d)[Tile::BN / 2],
                            const TileCoord<Step, Tile>& at) {
    with_sizes(t, d, at, [](Word& x, const RowSize& a, const RowSize& b) {
      const int s = -(scale_exponent(a.greatest) + scale_exponent(b.greatest)), half = s >> 1;
      x = x * power_of_2(half) * power_of_2(s - half);
    });
  }
  // d is part of a sum of magnitudes. If that is too small for what may have been lost of its terms,
  // the operands are called spread.
  SR_FN static void certify(const TensorParams& t, Word (&d)[Tile::BN / 2],
                            const TileCoord<Step, Tile>& at) {
    bool spread = false;
    with_sizes(t, d, at, [&spread](Word& x, const RowSize& a, const RowSize& b) {
      const float of_a = a.sum * power_of_2(scale_exponent(a.greatest));
      const float of_b = b.sum * power_of_2(scale_exponent(b.greatest));
      // LOSS (of_a + of_b) within 2^-24 of the sum
      const bool enough = x >= LOSSY * (of_a + of_b);
      spread |= !(enough || of_a == 0 || of_b == 0);
    });
    if (spread) atomic_or(t.p.errors, IS_SPREAD);
  }

  // What a thread reads of a screen's tile before it is multiplied.
  struct Limits {
    float bound[2];   // [2 rows]
    float scale[2], least;  // of Binary: [2 rows], and of all columns
    float column[2];  // of the columns whose numbers this thread hands on
  };
  SR_FN static Limits limits_of(const TensorParams& t, const WorkTile& work) {
    const TileCoord<Step, Tile> at(t.p, work.tile);
    Limits own{};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = at.row + Tile::row(i);
      own.bound[i] = row < t.p.m ? t.bound[row] : -infinity<float>();
      if constexpr (!Is<Word>::floating) own.scale[i] = row < t.p.m ? t.scale[row] : 0;
    }
    static_assert(Tile::BN == 2 * WARPGROUP, "two columns a thread");
    const float* from = t.column + at.column + int(threadIdx.x) % WARPGROUP * 2;
    own.column[0] = from[0];
    own.column[1] = from[1];
    if constexpr (!Is<Word>::floating) own.least = t.least[at.column / Tile::BN];
    return own;
  }

  // What is compared with the bound of row i: of bits in common, the more the less.
  SR_FN static float entry(Word d, float column, [[maybe_unused]] const Limits& limits, int i) {
    if constexpr (Is<Word>::floating) return d + column;
    else return fma(-limits.scale[i], float(d), column);
  }
  // Entries of a tile that are at most the bound of their row.
  struct Hits {
    u32 columns[2][(Tile::TN + 31) / 32];  // [2 rows]: bit j % 32 of column j
    int row, column;                // the tile's first
  };
  // Whether a value is at most a bound is added up as a bit of a float's 23: the additions do not go
  // where comparisons go.
  SR_FN void screen(Hits& hits, const TensorParams& t, const Word (&d)[Tile::BN / 2],
                    const WorkTile& work, const Limits& limits) {
    const TileCoord<Step, Tile> at(t.p, work.tile);
    // of the two copies, other threads may still read the one of the tile before
    const int warpgroup = int(threadIdx.x) / WARPGROUP, thread = int(threadIdx.x) % WARPGROUP;
    float* columns = reinterpret_cast<float*>(outgoing) + (warpgroup * 2 + screened) * Tile::BN;
    screened ^= 1;
    columns[2 * thread] = limits.column[0];
    columns[2 * thread + 1] = limits.column[1];
    warpgroup_sync(warpgroup);  // between writing the numbers and reading them
    hits.row = at.row;
    hits.column = at.column;
#pragma unroll
    for (int i = 0; i < 2 * (Tile::TN / 32); ++i) hits.columns[i % 2][i / 2] = 0;
    if constexpr (!Is<Word>::floating) {  // of most tiles not even the largest counts pass
      Word most[2] = {0, 0};  // [2 rows]
#pragma unroll
      for (int j = 0; j < Tile::TN; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) most[i] = max(most[i], d[Tile::at(i, j)]);
      bool any = false;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        any |= entry(most[i], limits.least, limits, i) <= limits.bound[i];
      if (!ballot(any)) return;
    }
    // of this thread's columns, how many are inside of the matrix
    static_assert(Tile::VN == 2, "as warpgroup_mma leaves them: two of every eight");
    const int left = t.p.n - at.column - int(threadIdx.x) % 4 * 2;
    const int inside = left <= 0 ? 0 : left / 8 * 2 + (left % 8 < 2 ? left % 8 : 2);
#pragma unroll
    for (int first = 0; first < Tile::TN; first += 16) {
      float bits[2] = {0x1p23f, 0x1p23f};  // [2 rows]
#pragma unroll
      for (int j = 0; j < 16; j += 2) {
        const auto add = *reinterpret_cast<const Pack<float, 2>*>(columns + Tile::column(first + j));
#pragma unroll
        for (int v = 0; v < 2; ++v)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (entry(d[Tile::at(i, first + j + v)], add.x[v], limits, i) <= limits.bound[i])
              bits[i] += float(1 << (j + v));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
        hits.columns[i][first / 32] |= (bits_as<u32>(bits[i]) & 0xffffu) << first % 32;
    }
#pragma unroll
    for (int w = 0; w < Tile::TN / 32; ++w)
      if (inside < 32 * w + 32) {
        const u32 mask = inside <= 32 * w ? 0 : (1u << (inside - 32 * w)) - 1;
#pragma unroll
        for (int i = 0; i < 2; ++i) hits.columns[i][w] &= mask;
      }
  }
  // Append their columns to the candidates of their rows.
  SR_FN static void append(const TensorParams& t, const Hits& hits) {
    constexpr int WORDS = Tile::TN / 32;
    u32 every = 0;
#pragma unroll
    for (int i = 0; i < 2 * WORDS; ++i) every |= hits.columns[i / WORDS][i % WORDS];
    if (!ballot(every != 0)) return;
    const int lane = int(threadIdx.x) % 32, q = lane % 4;
    u32 place[2], before[2];  // [2 rows]: of this thread's first; four lanes have a row
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      u32 own = 0;
#pragma unroll
      for (int w = 0; w < WORDS; ++w) own += u32(popcount(hits.columns[i][w]));
      const u32 beside = shuffle_xor(own, 1), across = shuffle_xor(own + beside, 2);
      before[i] = (q & 1 ? beside : 0) + (q & 2 ? across : 0);
      place[i] = 0;
      if (q == 0 && own + beside + across > 0)
        place[i] = fetch_add(t.count + hits.row + Tile::row(i), own + beside + across);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) place[i] = shuffle(place[i], lane - q) + before[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      u32* to = t.candidates + i64(hits.row + Tile::row(i)) * t.capacity;
#pragma unroll
      for (int w = 0; w < WORDS; ++w)
        for (u32 rest = hits.columns[i][w]; rest; rest &= rest - 1) {
          const int j = 32 * w + bit_length(rest & (0u - rest)) - 1;
          if (place[i] < t.capacity) to[place[i]] = u32(hits.column + Tile::column(j));
          ++place[i];
        }
    }
  }

  // A tile of C in its type, two columns to a word.
  struct Rounded {
    u32 words[Tile::BN / 4];  // [BN / 8][2 rows]
    int batch, row, column;  // the tile's, its first; row -1: no tile

    SR_FN void round(const Word (&d)[Tile::BN / 2], const TileCoord<Step, Tile>& at) {
#pragma unroll
      for (int e = 0; e < Tile::BN / 4; ++e) {
        words[e] = pack_x2<typename Step::Algebra::Storage>(d[2 * e], d[2 * e + 1]);
        pin(words[e]);
      }
      batch = int(at.batch);
      row = at.row;
      column = at.column;
    }
  };
  // COMBINE: there is an α or a C to be added.
  template <bool COMBINE>
  SR_FN void store_words(const TensorParams& t, const Word (&d)[Tile::BN / 2],
                         const TileCoord<Step, Tile>& at) {
    const LinearCombination<typename Step::Algebra> combine(t.p);
    write(t, at, [&](int e) {
      return pair<COMBINE>(t.p, combine, d + 2 * e, at.batch, at.row + Tile::row(e % 2),
                           at.column + e / 2 * 8 + int(threadIdx.x) % 4 * 2);
    });
  }
  // Write a warpgroup's 64 rows by the copy engine. word(e): two columns, [BN / 8][2 rows].
  template <class At, class WordOf>
  SR_FN void write(const TensorParams& t, const At& at, WordOf word) {
    const int thread = int(threadIdx.x) % WARPGROUP, warpgroup = int(threadIdx.x) / WARPGROUP;
    if constexpr (ACROSS) {  // rows are contiguous: a box of all columns
      // the column of a matrix that this lane addresses: [columns of 8][rows 0, 8][8 columns]
      const int line = thread % 32 / 16 * 8 + thread % 8, piece = thread / 32 * 2 + thread / 8 % 2;
      u8* box = outgoing + warpgroup * Tile::BN * LINE;
      if (thread == 0) store_wait<0>();
      warpgroup_sync(warpgroup);  // between reading the box before and overwriting it
#pragma unroll
      for (int j = 0; j < Tile::BN / 8; j += 2)  // 16 columns
        store_columns<true>(box + swizzled((j * 8 + line) * LINE + piece * 16), j, word);
      store_fence();
      warpgroup_sync(warpgroup);  // between writing the box and reading it
      if (thread == 0) {
        const int row = at.row + warpgroup * 64;
        if (row < t.p.m) store_box(t.c, box, row, at.column, int(at.batch));
        store_commit();
      }
    } else {  // boxes of 64 columns, STORE_BOXES at once
#pragma unroll
      for (int first = 0; first < BOXES; first += STORE_BOXES) write_boxes(t, at, word, first);
    }
  }
  template <class At, class WordOf>
  SR_FN void write_boxes(const TensorParams& t, const At& at, WordOf word, int first) {
    int thread = int(threadIdx.x) % WARPGROUP;
    pin(thread);  // else addresses that follow from it are kept in registers all along
    const int warpgroup = int(threadIdx.x) / WARPGROUP;
    // the row of a matrix that this lane addresses: [columns of 8][rows 0, 8][8 rows]
    const int line = thread / 32 * 16 + thread % 16, piece = thread % 32 / 16;
    u8* boxes = outgoing + warpgroup * STORE_BOXES * BOX;
    if (thread == 0) store_wait<0>();
    warpgroup_sync(warpgroup);  // between reading the boxes before and overwriting them
#pragma unroll
    for (int i = 0; i < STORE_BOXES && first + i < BOXES; ++i)
#pragma unroll
      for (int j = 0; j < 8; j += 2)  // 16 columns
        store_columns<false>(boxes + i * BOX + swizzled(line * LINE + (j + piece) * 16),
                             (first + i) * 8 + j, word);
    store_fence();
    warpgroup_sync(warpgroup);  // between writing the boxes and reading them
    if (thread == 0) {
#pragma unroll
      for (int i = 0; i < STORE_BOXES && first + i < BOXES; ++i) {
        const int column = at.column + (first + i) * 64, row = at.row + warpgroup * 64;
        if (column < t.p.n) store_box(t.c, boxes + i * BOX, column, row, int(at.batch));
      }
      store_commit();
    }
  }
  // Of the tile before, if it has not been written.
  SR_FN void write_boxes(const TensorParams& t, const Rounded& tile, int first) {
    if (tile.row >= 0) write_boxes(t, tile, [&](int e) { return tile.words[e]; }, first);
  }
  // 16 columns from the group-th eight on: [2 of 8 columns][2 rows].
  template <bool TRANSPOSED, class WordOf>
  SR_FN static void store_columns(void* to, int group, WordOf word) {
    u32 x[4];  // [2][2]
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] = word(group * 2 + e);
    store_matrices<TRANSPOSED>(to, x);
  }
  // Two elements of C, of adjacent columns.
  template <bool COMBINE, class Combine>
  SR_FN static u32 pair(const ProductParams& p, const Combine& combine, const Word* x, i64 batch,
                        int row, int column) {
    using Algebra = typename Step::Algebra;
    using Storage = typename Algebra::Storage;
    if constexpr (!COMBINE) return pack_x2<Storage>(x[0], x[1]);
    u32 both = 0;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      Storage old{};
      if ((p.mode & READ_C) && row < p.m && column + e < p.n)
        old = static_cast<const Storage*>(
            p.c)[batch * p.c_batch + row * p.c_m + (column + e) * p.c_n];
      both |= u32(combine(x[e], old).bits) << 16 * e;
    }
    return both;
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
  RowSize* sizes;         // [batch][rows], where rows are scaled
  u32* flags;             // kinds of entries
  half* sample;           // [batch][rows][sample_ld]: magnitudes ...
  i64 row, k_step, batch_stride, ld;  // strides of `from`, leading dimension of `to`, in elements
  i64 k_tiles, row_tiles, tiles;  // of 64 x 64, along k, along the rows, and in all
  i64 sample_ld;
  int rows, k;
  int every;              // ... at each 2^every-th step of k
  u32 forbidden;          // as in ProductParams
  int unless, flag_words;
};

// Kernel: an operand whose layout or dtype the copy engine does not take, k-major and rounded to
// Kind. Through shared memory, so that reads and writes are both contiguous.
template <class Storage, class Kind, int PARTS>
struct Convert {
  using Element = typename Kind::Element;
  static constexpr int SIDE = 64, THREADS = 256, PITCH = SIDE + 1;  // + 1: no bank conflicts

  SR_FN static void run(const ConvertParams& p) {
    if (!is_selected(p)) return;
    for (i64 i = blockIdx.x; i < p.tiles; i += gridDim.x) {
      convert(p, i);
      __syncthreads();  // between reading a tile and storing the next
    }
  }
  SR_FN static void convert(const ConvertParams& p, i64 index) {
    const i64 k0 = index % p.k_tiles * SIDE, rest = index / p.k_tiles;
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

// Kernel: the sizes of the rows of an operand of floats, and whether any entry is infinite, NaN or
// is_far. Sizes and flags are 0 before. ACROSS: rows are contiguous, not k.
template <bool ACROSS>
struct Measure {
  static constexpr int ROWS = 64, DEPTH = 512, THREADS = 256, WARPS = THREADS / 32, ITEMS = 16;

  SR_FN static void run(const ConvertParams& p) {
    const i64 groups = (p.k + DEPTH - 1) / DEPTH, rest = blockIdx.x / groups;
    const i64 row0 = rest % p.row_tiles * ROWS, batch = rest / p.row_tiles;
    const int k0 = int(blockIdx.x % groups) * DEPTH;
    const float* from = static_cast<const float*>(p.from) + batch * p.batch_stride;
    RowSize* sizes = p.sizes + batch * p.rows;  // [rows]
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    u32 kinds = 0;
    if constexpr (ACROSS) {  // a thread for each row, and each ROWS / WARPS-th part of k
      constexpr int PARTS = THREADS / ROWS, EACH = DEPTH / PARTS;
      const i64 row = row0 + threadIdx.x % ROWS;
      const int first = k0 + int(threadIdx.x) / ROWS * EACH;
      if (row < p.rows) {
        RowSize own{};
        for (int k = first; k < first + EACH; k += ITEMS)
          add(p, kinds, own, from + row * p.row, k, 1);
        join(sizes[row], own);
      }
    } else {  // a warp for each row
      for (int i = warp; i < ROWS; i += WARPS) {
        if (row0 + i >= p.rows) break;
        RowSize own{};
        add(p, kinds, own, from + (row0 + i) * p.row, k0 + lane, 32);
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) {
          const u32 other = shuffle_xor(own.greatest, mask);
          own.greatest = own.greatest > other ? own.greatest : other;
          own.sum += shuffle_xor(own.sum, mask);
        }
        if (lane == 0) join(sizes[row0 + i], own);
      }
    }
    if (kinds) atomic_or(p.flags, kinds);
  }

  SR_FN static void join(RowSize& all, const RowSize& own) {
    if (own.greatest == 0) return;
    atomic_max(&all.greatest, own.greatest);
    atomic_add(&all.sum, own.sum);
  }
  // ITEMS entries, from k on.
  SR_FN static void add(const ConvertParams& p, u32& kinds, RowSize& own, const float* row, int k,
                        int step) {
    float x[ITEMS];  // [ITEMS]
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) x[i] = k + i * step < p.k ? row[(k + i * step) * p.k_step] : 0;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const u32 size = bits_as<u32>(x[i]) & 0x7fffffffu;
      if (size >= 0x7f800000u) kinds |= IS_NAN;
      if (is_far(x[i])) kinds |= IS_FAR;
      own.greatest = own.greatest > size ? own.greatest : size;
      own.sum += abs(x[i]);
    }
  }
};

// Kernel: an operand of floats as the sum of two of 16-bit floats, of which the second one counts in
// units of SMALL_UNIT, with rows scaled by their sizes.
//
// What entries lose below LOSS matters only if no large ones make up for it. So where entries are
// lossy, Certificate multiplies magnitudes at some k. ACROSS: rows are contiguous, not k.
template <bool ACROSS>
struct Split {
  static constexpr int SIDE = 64, THREADS = 256, WARPS = THREADS / 32, PITCH = SIDE + 1;

  SR_FN static void run(const ConvertParams& p) {
    if (!is_selected(p)) return;
    for (i64 i = blockIdx.x; i < p.tiles; i += gridDim.x) {
      convert(p, i);
      __syncthreads();  // between reading a tile and storing the next
    }
  }
  SR_FN static void convert(const ConvertParams& p, i64 index) {
    const i64 k0 = index % p.k_tiles * SIDE, rest = index / p.k_tiles;
    const i64 row0 = rest % p.row_tiles * SIDE, batch = rest / p.row_tiles;
    const float* from = static_cast<const float*>(p.from) + batch * p.batch_stride;
    const RowSize* sizes = p.sizes + batch * p.rows;                     // [rows]
    half* high = static_cast<half*>(p.to) + batch * 2 * p.rows * p.ld;  // [2][rows][ld]
    half* low = high + p.rows * p.ld;
    half* sample = p.sample + batch * p.rows * p.sample_ld;  // [rows][sample_ld]
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    [[maybe_unused]] float* tile = shared_memory<float>();  // [SIDE of k][PITCH of rows]
    const i64 k = k0 + 2 * lane;
    constexpr int EACH = SIDE / WARPS;  // rows of a warp
    float x[EACH][2];                   // [EACH][2 steps of k]; all loads are in flight at once
    if constexpr (ACROSS) {
#pragma unroll
      for (int i = 0; i < 2 * EACH; ++i) {
        const int column = i % 2 * 32 + lane, step = warp * EACH + i / 2;
        const bool inside = row0 + column < p.rows && k0 + step < p.k;
        x[i / 2][i % 2] = inside ? from[row0 + column + (k0 + step) * p.k_step] : 0;
      }
#pragma unroll
      for (int i = 0; i < 2 * EACH; ++i)
        tile[(warp * EACH + i / 2) * PITCH + i % 2 * 32 + lane] = x[i / 2][i % 2];
      __syncthreads();  // between storing the tile and reading it
#pragma unroll
      for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) x[i][e] = tile[(2 * lane + e) * PITCH + warp * EACH + i];
    } else {
#pragma unroll
      for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const i64 row = row0 + warp * EACH + i;
          x[i][e] = row < p.rows && k + e < p.k ? from[row * p.row + (k + e) * p.k_step] : 0;
        }
    }
    bool lossy = false;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const i64 row = row0 + warp * EACH + i;
      if (row >= p.rows) break;
      const float scale = power_of_2(scale_exponent(sizes[row].greatest));
      u32 pair[2] = {};  // [high, low]
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float value = x[i][e] * scale;
        const half first = to_half(value);
        const half second = to_half((value - to_float(first)) * (1 / SMALL_UNIT));
        pair[0] |= u32(first.bits) << 16 * e;
        pair[1] |= u32(second.bits) << 16 * e;
        lossy |= value != 0 && abs(value) < LOSSY;
        if (k + e < p.k && ((k + e) & ((1 << p.every) - 1)) == 0)
          sample[row * p.sample_ld + ((k + e) >> p.every)] = half{u16(first.bits & 0x7fffu)};
      }
      if (k < p.ld) {  // ld is even
        *reinterpret_cast<u32*>(high + row * p.ld + k) = pair[0];
        *reinterpret_cast<u32*>(low + row * p.ld + k) = pair[1];
      }
    }
    if (lossy) atomic_or(p.flags, IS_LOSSY);
  }
};

}  // namespace sr

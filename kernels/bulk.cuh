// Kernel: the product C <- (α ⊗ A ⊗ B) ⊕ (β ⊗ C) by Hopper's copy engine, for operands whose rows
// (of A: columns) are contiguous, so that a box of either is a tile of k as the multiplier reads it.
// One thread copies such tiles to stages, 256 others multiply; none of their instructions are copies,
// addresses or barriers of the block. Multiplier, schedule and epilogue are those of product.cuh.
//
// What lies outside of an operand is loaded as 0. Only if ⊕ does not notice the ⊗ of two zeros may k
// be other than a multiple of BK.
#pragma once
#include "epilogue.cuh"
#include "multiplier.cuh"
#include <hopper.cuh>

namespace sr {

struct BulkParams {
  TensorMap a, b;   // [batch][k][m] and [batch][k][n], in boxes of BK x BM and BK x BN words
  ProductParams p;  // a_batch and b_batch are 1, or 0 where the whole batch has one operand
};

template <class Tile>
struct BulkTile : Tile {
  static constexpr bool IN_ORDER = true;
};

// VECTOR: columns of C are adjacent and aligned (epilogue.cuh).
//
// A stage's barriers lie behind it, so that one offset leads to all of it. `full`: its bytes have
// landed. `empty`: all warps have read it.
template <class Step, class Tile, bool VECTOR>
struct BulkProduct {
  using Word = typename Step::Word;
  using Algebra = typename Step::Algebra;
  using InOrder = BulkTile<Tile>;
  static constexpr int A_BYTES = Tile::BK * Tile::BM * int(sizeof(Word));
  static constexpr int STAGE = A_BYTES + Tile::BK * Tile::BN * int(sizeof(Word));
  static constexpr int ALIGNED = 128;  // bytes: of a box
  static constexpr int STRIDE = STAGE + ALIGNED, END = Tile::STAGES * STRIDE;
  static constexpr int BYTES = ALIGNED + END;
  static constexpr int THREADS = Tile::THREADS + WARPGROUP;  // which hands registers on
  static constexpr int K_STEPS = Tile::BK / Step::DEPTH;     // of a tile
  static constexpr int UNROLL = Step::SHORT ? 8 : 4;  // k steps in the body of the inner loop
  static_assert(sizeof(Word) == sizeof(typename Algebra::Storage), "words are copied as they are");
  static_assert(STAGE % ALIGNED == 0 && A_BYTES % ALIGNED == 0, "boxes are aligned");
  static_assert(2 * sizeof(Barrier) <= ALIGNED, "two barriers lie behind a stage");
  static_assert(K_STEPS % UNROLL == 0, "the unrolled body fills a tile");

  SR_FN static Barrier& full(u8* stage) { return reinterpret_cast<Barrier*>(stage + STAGE)[0]; }
  SR_FN static Barrier& empty(u8* stage) { return reinterpret_cast<Barrier*>(stage + STAGE)[1]; }

  SR_FN static void run(const BulkParams& t) {
    // --- barriers and stages in shared memory
    u8* memory = shared_memory<u8>();
    u8* stages = kept(memory + (ALIGNED - reinterpret_cast<u64>(memory) % ALIGNED) % ALIGNED);
    if (int(threadIdx.x) == Tile::THREADS) {
      prefetch_map(t.a);
      prefetch_map(t.b);
      for (int stage = 0; stage < END; stage += STRIDE) {
        full(stages + stage).init(1);
        empty(stages + stage).init(Tile::THREADS / 32);
      }
      fence_barrier_init();
    }
    __syncthreads();  // between initialising the barriers and using them
    if (!is_selected(t.p)) return;
    // --- specialisation: the last warps produce, with few registers, the others consume
    if (int(threadIdx.x) >= Tile::THREADS) {
      warpgroup_reg_dealloc<40>();
      if (int(threadIdx.x) == Tile::THREADS) produce(t, stages);
    } else {
      warpgroup_reg_alloc<232>();
      consume(t.p, stages);
    }
  }

  // The next stage, and the parity of its phase, which flips when stages wrap around.
  SR_FN static void next(int& stage, u32& parity) {
    stage += STRIDE;
    if (stage < END) return;
    stage = 0;
    parity ^= 1;
  }

  // One thread: all tiles of k of all work tiles of this block, in order.
  SR_FN static void produce(const BulkParams& t, u8* stages) {
    const ProductParams& p = t.p;
    int stage = 0;
    u32 parity = 0;
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      const TileCoord<Step, Tile> at(p, work.tile);
      const int a_z = int(at.batch * p.a_batch), b_z = int(at.batch * p.b_batch);
      for (int k = work.k; k < work.k + work.depth; k += Tile::BK) {
        u8* to = stages + stage;
        empty(to).wait(parity ^ 1);  // the first round passes: no phase has ended yet
        full(to).arrive_and_expect(STAGE);
        load_box<1>(to, t.a, full(to), at.row, k, a_z);
        load_box<1>(to + A_BYTES, t.b, full(to), at.column, k, b_z);
        next(stage, parity);
      }
    }
  }

  // All other threads. Fragments of a k step are loaded before the arithmetic of the one before it.
  SR_FN static void consume(const ProductParams& p, u8* stages) {
    u8* as = kept(stages + Tile::row(0) * int(sizeof(Word)));
    u8* bs = kept(stages + A_BYTES + Tile::column(0) * int(sizeof(Word)));
    const int lane = int(threadIdx.x) % 32;
    int stage = 0;
    u32 parity = 0;
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      Multiplier<Step, InOrder> block;
      block.clear();
      Fragment<Step, InOrder, Step::DEPTH> fragment[2];  // [2]: of this k step and of the next
      full(stages + stage).wait(parity);
      load(fragment[0], as + stage, bs + stage);
#pragma unroll 1
      for (int rest = (work.depth + Tile::BK - 1) / Tile::BK; rest > 0; --rest) {
        u8* own = stages + stage;
        u8* a_now = as + stage;  // of the next UNROLL k steps
        u8* b_now = bs + stage;
#pragma unroll 1
        for (int part = 0; part < K_STEPS; part += UNROLL) {
#pragma unroll
          for (int s = 0; s < UNROLL; ++s) {
            if (s + 1 == UNROLL) {  // the next fragment is of the next part, or of the next tile
              a_now += UNROLL * Step::DEPTH * Tile::BM * int(sizeof(Word));
              b_now += UNROLL * Step::DEPTH * Tile::BN * int(sizeof(Word));
              if (part + UNROLL == K_STEPS) {
                if (rest > 1) {  // else any valid address
                  next(stage, parity);
                  full(stages + stage).wait(parity);
                }
                a_now = as + stage;
                b_now = bs + stage;
              }
            }
            load(fragment[(s + 1) % 2], a_now, b_now, (s + 1) % UNROLL * Step::DEPTH);
            block.take(fragment[s % 2], p.unit);
          }
        }
        __syncwarp();  // between this warp's reads of the stage and its release
        if (lane == 0) empty(own).arrive();
      }
      next(stage, parity);
      block.finish(p.unit);
      const TileCoord<Step, Tile> at(p, work.tile);
      Epilogue<Step, Tile, VECTOR>::store(p, block.acc, work, at);
    }
  }
  template <class Fragment>
  SR_FN static void load(Fragment& x, const u8* as, const u8* bs, int k = 0) {
    x.template load<Tile::BM, Tile::BN>(reinterpret_cast<const Word*>(as),
                                        reinterpret_cast<const Word*>(bs), k);
  }
};

}  // namespace sr

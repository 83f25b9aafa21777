// Kernel: the product C <- (α ⊗ A ⊗ B) ⊕ (β ⊗ C) of operands whose rows (of A: columns) are
// contiguous along m and n, by Hopper's copy engine: one warp copies tiles of k to stages, the others
// multiply. Multiplier, schedule and epilogue are those of product.cuh; what lies outside of the
// operands is loaded as 0, so ⊗ of zeros must be what ⊕ leaves alone.
#pragma once
#include "epilogue.cuh"
#include "multiplier.cuh"
#include <hopper.cuh>

namespace sr {

struct BulkParams {
  TensorMap a, b;  // [batch][k][m] and [batch][k][n], in boxes of BK lines
  ProductParams p;
};

template <class Step, class Tile, bool VECTOR>
struct BulkProduct {
  using Word = typename Step::Word;
  static constexpr int STAGES = Tile::STAGES;
  static constexpr int A_BYTES = Tile::BK * Tile::BM * int(sizeof(Word));
  static constexpr int STAGE = A_BYTES + Tile::BK * Tile::BN * int(sizeof(Word));
  static constexpr int THREADS = Tile::THREADS + WARPGROUP;
  static constexpr int BYTES = 128 + STAGES * (STAGE + 128);
  static constexpr int STEPS = Tile::BK / Step::DEPTH;  // of a tile of k
  static constexpr int UNROLL = STEPS < 8 ? STEPS : 8;
  static constexpr int PARTS = STEPS / UNROLL;
  static_assert(STEPS % UNROLL == 0 && UNROLL % 2 == 0, "");

  // A stage, and behind it its barriers.
  static constexpr int STRIDE = STAGE + 128;
  static_assert(STAGE % 128 == 0, "boxes are aligned to 128 bytes");

  SR_FN static Barrier& full(u8* stage) { return reinterpret_cast<Barrier*>(stage + STAGE)[0]; }
  SR_FN static Barrier& empty(u8* stage) { return reinterpret_cast<Barrier*>(stage + STAGE)[1]; }

  SR_FN static void run(const BulkParams& t) {
    u8* memory = shared_memory<u8>();
    u8* stages = kept(memory + (128 - (reinterpret_cast<u64>(memory) & 127)) % 128);
    if (int(threadIdx.x) == Tile::THREADS) {
      prefetch_map(t.a);
      prefetch_map(t.b);
      for (int s = 0; s < STAGES; ++s) {
        full(stages + s * STRIDE).init(1);
        empty(stages + s * STRIDE).init(Tile::THREADS / 32);
      }
      fence_barrier_init();
    }
    __syncthreads();  // between initialising the barriers and using them
    if (!is_selected(t.p)) return;
    if (int(threadIdx.x) >= Tile::THREADS) {
      warpgroup_reg_dealloc<40>();
      if (int(threadIdx.x) == Tile::THREADS) produce(t, stages);
    } else {
      warpgroup_reg_alloc<232>();
      consume(t.p, stages);
    }
  }

  SR_FN static void produce(const BulkParams& t, u8* stages) {
    const ProductParams& p = t.p;
    int stage = 0;
    u32 parity = 0;
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      const TileCoord<Step, Tile> at(p, work.tile);
      for (int k = work.k; k < work.k + work.depth; k += Tile::BK) {
        u8* to = stages + stage;
        empty(to).wait(parity ^ 1);
        full(to).arrive_and_expect(STAGE);
        load_box<1>(to, t.a, full(to), at.row, k, int(at.batch * p.a_batch));
        load_box<1>(to + A_BYTES, t.b, full(to), at.column, k, int(at.batch * p.b_batch));
        next(stage, parity);
      }
    }
  }
  SR_FN static void next(int& stage, u32& parity) {
    stage += STRIDE;
    if (stage < STAGES * STRIDE) return;
    stage = 0;
    parity ^= 1;
  }

  SR_FN static void consume(const ProductParams& p, u8* stages) {
    const int a_at = Tile::row(0) * 4, b_at = A_BYTES + Tile::column(0) * 4;
    u8* as = kept(stages + a_at);
    u8* bs = kept(stages + b_at);
    const int lane = int(threadIdx.x) % 32;
    int stage = 0;
    u32 parity = 0;
    for (int index = int(blockIdx.x); index < work_tiles(p); index += int(gridDim.x)) {
      const WorkTile work(p, index);
      Multiplier<Step, Tile> block;
      block.clear();
      int tiles = (work.depth + Tile::BK - 1) / Tile::BK;
      full(stages + stage).wait(parity);
      Fragment<Step, Tile, Step::DEPTH> fragment[2];
      fragment[0].template load<Tile::BM, Tile::BN>(reinterpret_cast<const Word*>(as + stage), reinterpret_cast<const Word*>(bs + stage), 0);
#pragma unroll 1
      for (; tiles > 0; --tiles) {
        const Word* a_now = reinterpret_cast<const Word*>(as + stage);
        const Word* b_now = reinterpret_cast<const Word*>(bs + stage);
        u8* own = stages + stage;
#pragma unroll 1
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
          for (int s = 0; s < UNROLL; ++s) {
            if (s + 1 == UNROLL) {
              a_now += UNROLL * Step::DEPTH * Tile::BM;
              b_now += UNROLL * Step::DEPTH * Tile::BN;
              if (part + 1 == PARTS) {
                next(stage, parity);
                if (tiles > 1) full(stages + stage).wait(parity);
                a_now = reinterpret_cast<const Word*>(as + stage);
                b_now = reinterpret_cast<const Word*>(bs + stage);
              }
            }
            const int ahead = (s + 1) % UNROLL * Step::DEPTH;
            fragment[(s + 1) % 2].template load<Tile::BM, Tile::BN>(a_now, b_now, ahead);
            block.take(fragment[s % 2], p.unit);
          }
        }
        __syncwarp();  // between this warp's reads of the stage and its release
        if (lane == 0) empty(own).arrive();
      }
      block.finish(p.unit);
      Epilogue<Step, Tile, VECTOR>::store(p, block.acc, work, TileCoord<Step, Tile>(p, work.tile));
    }
  }
};

}  // namespace sr

// The shape of a block's work, and who of its threads does what.
#pragma once
#include "base.cuh"

namespace sr {

// A block computes BM x BN words of C, in steps of BK through k. Its warps lie in a grid over the
// tile; a warp's lanes are LM x (32 / LM); a thread has TM x TN accumulators. Rows and columns of a
// thread come in groups of VM and VN, and the lanes of a warp take turns with these groups, so that a
// warp reads each row of shared memory without bank conflicts:
//
//     row of accumulator i:  warp * TM * LM + (i / VM) * VM * LM + lane * VM + i % VM
//
// Neighbouring lanes have the same rows, and lanes two apart the same columns: where either holds
// for all, a 16-byte read of shared memory takes half the time.
template <int BM_, int BN_, int BK_, int TM_, int TN_, int LM_>
struct Tile {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, LM = LM_;
  static constexpr int LN = 32 / LM;
  static constexpr int VM = TM % 4 == 0 ? 4 : TM % 2 == 0 ? 2 : 1;
  static constexpr int VN = TN % 4 == 0 ? 4 : TN % 2 == 0 ? 2 : 1;
  static constexpr int WARPS_M = BM / (TM * LM), WARPS_N = BN / (TN * LN);
  static constexpr int THREADS = 32 * WARPS_M * WARPS_N;
  static constexpr int PAD = 4;  // words between rows of shared memory; keeps them 16-byte aligned
  static_assert(LM * LN == 32, "LM divides a warp");
  static_assert(WARPS_M * TM * LM == BM, "warps cover BM");
  static_assert(WARPS_N * TN * LN == BN, "warps cover BN");
  static_assert(BM % 4 == 0 && BN % 4 == 0, "rows of shared memory are 16-byte aligned");
  static_assert(BK % 4 == 0, "k is read four at a time");
  static_assert(THREADS <= 1024, "a block has at most 1024 threads");

  SR_FN static int row(int i) {
    const int warp = int(threadIdx.x) / 32;
    return warp / WARPS_N * (TM * LM) + i / VM * (VM * LM) + lane_row() * VM + i % VM;
  }
  SR_FN static int column(int j) {
    const int warp = int(threadIdx.x) / 32;
    return warp % WARPS_N * (TN * LN) + j / VN * (VN * LN) + lane_column() * VN + j % VN;
  }

  static constexpr bool SWIZZLED = false;  // whether rows lie in another order in shared memory

  // Where a lane is among the LM x LN of its warp.
  SR_FN static int lane_row() { return LM == 8 ? inner() : LM == 4 ? outer() : lane() / LN; }
  SR_FN static int lane_column() { return LM == 8 ? outer() : LM == 4 ? inner() : lane() % LN; }
  SR_FN static int lane() { return int(threadIdx.x) % 32; }
  SR_FN static int inner() { return lane() / 2 % 8; }             // bits 1 to 3
  SR_FN static int outer() { return lane() % 2 + lane() / 16 * 2; }  // bits 0 and 4
};

}  // namespace sr

// The shape of a block's work, and which thread computes which elements of it.
#pragma once
#include "base.cuh"

namespace sr {

// A block computes a tile of BM x BN words of C, BK steps of k at a time. Its warps lie in a grid
// of WARPS_M x WARPS_N over the tile; a warp's lanes in a grid of LM x LN (LN = 32 / LM); a thread
// has TM x TN accumulators.
//
//         <------------ BN ------------>
//       ^ +---------+---------+--------+
//       | | warp 0  | warp 1  |        |     a warp: LM * TM rows, LN * TN columns
//      BM +---------+---------+--------+
//       | | warp 2  | ...     |        |     WARPS_N = 3 here
//       v +---------+---------+--------+
//
// A thread's rows come in groups of VM, its columns in groups of VN, interleaved among the lanes:
// lane l has the group l of each LM (LN) groups. So the lanes of a warp together read a contiguous
// line of shared memory, in vectors of VM (VN) words, without bank conflicts:
//
//     row of accumulator i:  warp row * TM * LM + (i / VM) * VM * LM + lane row * VM + i % VM
//
// Lanes 2 i and 2 i + 1 share rows, and lanes two apart share columns (LM == 8; or the other way
// round): where either holds for all lanes, a 16-byte read of shared memory takes half the time.
//
// PAIRS: in shared memory, two steps of k lie side by side for each row: k, k + 1 of A, and k + 1, k
// of B. A 16-byte read then fills four registers whose parity is that of k for A, and the opposite
// for B, so that the two operands of a sum lie in different register banks. Groups of four rows are
// cut into halves of two, 4 LM words apart, for which a warp's reads are contiguous again:
//
//     rows      0 1 | 4 5 | ... (LM groups)   2 3 | 6 7 | ...   then the next 4 LM rows
//     words of k, k + 1 of each
//
// STAGES: tiles of k in shared memory, loading or in use. More than two are for operands that are
// copied asynchronously wherever that is possible.
template <int BM_, int BN_, int BK_, int TM_, int TN_, int LM_, bool PAIRS_ = false,
          int STAGES_ = 2>
struct Tile {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, LM = LM_;
  static constexpr bool PAIRS = PAIRS_;
  static constexpr int STAGES = STAGES_;
  static constexpr int LN = 32 / LM;
  static constexpr int VM = TM % 4 == 0 ? 4 : TM % 2 == 0 ? 2 : 1;  // words of a vector
  static constexpr int VN = TN % 4 == 0 ? 4 : TN % 2 == 0 ? 2 : 1;
  static constexpr int WARPS_M = BM / (TM * LM), WARPS_N = BN / (TN * LN);
  static constexpr int THREADS = 32 * WARPS_M * WARPS_N;
  static constexpr int PAD = 4;  // words between rows of shared memory: they stay 16-byte aligned
  static constexpr int SWIZZLED = 0;  // adjacent rows that change places in shared memory
  static constexpr bool IN_ORDER = false;  // whether columns are multiplied one after the other
  static_assert(LM * LN == 32, "LM divides a warp");
  static_assert(STAGES >= 2, "a tile is loaded while another one is read");
  static_assert(WARPS_M * TM * LM == BM, "warps cover BM");
  static_assert(WARPS_N * TN * LN == BN, "warps cover BN");
  static_assert(BM % 4 == 0 && BN % 4 == 0, "rows of shared memory are 16-byte aligned");
  static_assert(BK % 4 == 0, "k is read four at a time");
  static_assert(THREADS <= 1024, "a block has at most 1024 threads");
  static_assert(!PAIRS || (VM > 1 && VN > 1), "pairs of k are read for two rows at once");

  // Row and column of this thread's accumulators [i][j], from the tile's first.
  SR_FN static int row(int i) {
    const int warp = int(threadIdx.x) / 32;
    return warp / WARPS_N * (TM * LM) + i / VM * (VM * LM) + lane_row() * VM + i % VM;
  }
  SR_FN static int column(int j) {
    const int warp = int(threadIdx.x) / 32;
    return warp % WARPS_N * (TN * LN) + j / VN * (VN * LN) + lane_column() * VN + j % VN;
  }

  // Where a lane lies in the LM x LN of its warp.
  SR_FN static int lane_row() { return LM == 8 ? inner() : LM == 4 ? outer() : lane() / LN; }
  SR_FN static int lane_column() { return LM == 8 ? outer() : LM == 4 ? inner() : lane() % LN; }
  SR_FN static int lane() { return int(threadIdx.x) % 32; }
  SR_FN static int inner() { return lane() / 2 % 8; }                // bits 1 to 3
  SR_FN static int outer() { return lane() % 2 + lane() / 16 * 2; }  // bits 0 and 4
};

}  // namespace sr

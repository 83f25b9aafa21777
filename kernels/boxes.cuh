// How tiles lie in shared memory for Hopper's copy engine and matrix instructions. Portable.
#pragma once
#include "base.cuh"

namespace sr {

constexpr int WARPGROUP = 128;  // threads that issue a matrix instruction together

// An array of up to three dimensions, as the driver encodes it for the copy engine
// (cuTensorMapEncodeTiled).
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// A box: LINES lines of 128 bytes, each contiguous in global memory. In shared memory a box begins
// at a multiple of 1024 bytes, and the 16-byte pieces of line l are swizzled: piece p lies at p ^
// (l % 8), so that a column of pieces touches all banks.
constexpr int LINE = 128, LINES = 64, BOX = LINE * LINES;  // bytes, lines, bytes

SR_FN u32 swizzled(u32 address) { return address ^ (address >> 7 & 7) << 4; }

// Boxes of an operand. K_MAJOR: a line holds 128 bytes of k of one row, and a box 64 rows; else a
// line holds 64 rows (of 2 bytes each) of one k, and a box 64 k.
template <bool K_MAJOR>
struct Operand {
  // Bytes from the boxes' first to that of matrix instruction `s`, which covers k from s * Kind::K on.
  template <class Kind>
  SR_FN static constexpr int k_step(int s) {
    return s * (K_MAJOR ? 32 : Kind::K * LINE);
  }
};

}  // namespace sr

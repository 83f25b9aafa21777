// Kernel: rows of predecessors in which one is not strictly nearer than its node. Where all are,
// there can be no cycle.
#pragma once
#include "base.cuh"

namespace sr {

struct DoubtfulParams {
  const void* d;      // [rows][n]: distances
  const int* preds;   // [rows][n]; below 0: none
  u8* doubtful;       // [rows]: becomes 1
  i64 d_m, d_n, pred_m, pred_n;  // in elements
  int n;
};

// A block for each row, which stays in the first-level cache while predecessors are looked up.
template <class A>
struct Doubtful {
  using Storage = typename A::Storage;
  static constexpr int THREADS = 256;

  SR_FN static void run(const DoubtfulParams& p) {
    const i64 row = blockIdx.x;
    const Storage* d = static_cast<const Storage*>(p.d) + row * p.d_m;
    const int* preds = p.preds + row * p.pred_m;
    bool doubtful = false;
#pragma unroll 4
    for (int j = int(threadIdx.x); j < p.n; j += THREADS) {
      const int before = preds[j * p.pred_n];
      if (before < 0) continue;
      doubtful |= !A::better(A::decode(d[before * p.d_n]), A::decode(d[j * p.d_n]));
    }
    if (doubtful) p.doubtful[row] = 1;
  }
};

}  // namespace sr

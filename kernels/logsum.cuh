// Kernels: products whose ⊕ is logaddexp: log Σ exp(a ⊗ b).
//
// Where ⊗ is a + b, most entries come from a product over plus-times of exponentials, which are
// shifted to at most 1 (Shift). Settle takes the logarithm where the sum is large enough to be
// accurate, and marks the tiles of C that have other entries; LogSum computes these term by term.
// docs/log_plus.md has the error bounds.
#pragma once
#include "epilogue.cuh"
#include "pipeline.cuh"

namespace sr {

// The parameters of launches; the same fields in the same order in semiring_mm/gpu/logsum.py.
struct ShiftParams {
  const void* x;
  void* e;     // UP exp(x - shift of the row), of Compute
  void* ends;  // [batch][2][rows] of Compute: the shift; the least finite entry less the shift
  i64 x_row, x_k, x_batch, e_row, e_k, e_batch;
  int rows, depth;
};
struct LogSumParams {
  const void* a;
  const void* b;
  void* c;
  void* sums;           // [batch][m][n] of Compute; negative where LogSum has to compute; or none
  const void* rows;     // [batch or 1][2][m], [batch or 1][2][n]: the ends of A's rows ...
  const void* columns;  // ... and of B's columns
  u32* marks;           // [tiles of C]: whether LogSum has to compute any; none: everywhere
  u32* errors;          // set to 1 where a result does not fit its dtype
  i64 a_m, a_k, a_batch, b_k, b_n, b_batch, c_m, c_n, c_batch, rows_batch, columns_batch;
  i64 alpha, beta;      // the low bytes are a Compute
  int m, n, k, mode, tiles_m, tiles_n;
};

// Exponentials are stored times UP, so that products of small ones do not underflow; the true sum
// is DOWN = UP^-2 times the computed one. It is accurate if it is at least LEAST. Any finite term
// above exp(REACH) makes it nonzero. An exponential below exp(FAR) is computed as a square (ROOT =
// sqrt(UP)). For terms from FLAT on, the logarithm of their number is less than half a unit in the
// last place.
template <class T>
struct Limits;
template <>
struct Limits<float> {
  static constexpr float UP = 0x1p52f, ROOT = 0x1p26f, DOWN = 0x1p-104f;
  static constexpr float LEAST = 0x1p-126f, REACH = -130.0f, FAR = -60.0f, FLAT = 0x1p29f;
};
template <>
struct Limits<double> {
  static constexpr double UP = 0x1p400, ROOT = 0x1p200, DOWN = 0x1p-800;
  static constexpr double LEAST = 0x1p-1000, REACH = -1000.0, FAR = -600.0, FLAT = 0x1p58;
};

// UP exp(x); far below zero as a square, since exp(x) alone would be denormal.
template <class T>
SR_FN T lifted(T x) {
  using L = Limits<T>;
  const bool far = x < L::FAR;
  const T e = exp(far ? x / 2 : x);
  return far ? (e * L::ROOT) * (e * L::ROOT) : e * L::UP;
}

// Whether the sum of an entry is accurate, and then its logarithm. r, c: the shifts of its row of A
// and its column of B; r_low, c_low: their least finite entries, less the shifts.
template <class T>
SR_FN bool settled(T& value, T sum, T r, T r_low, T c, T c_low, T least = Limits<T>::LEAST) {
  const T inf = infinity<T>();
  value = r + c;
  if (r != r || c != c) return true;  // every term is NaN (an infinity only makes the sum NaN)
  const T whole = sum * Limits<T>::DOWN;
  if (whole >= least && whole < inf) {
    value = value + log(whole);
    return true;
  }
  // no finite term: any would have made the sum nonzero
  if (sum == T(0) && r_low + c_low >= Limits<T>::REACH) {
    value = -inf;
    return true;
  }
  return false;
}

// Kernel: UP exp(x - r) of the rows of a matrix, with r the largest entry of the row, or 0 if that
// is -inf. K_MAJOR: rows are further apart than steps of k, so neighbouring threads lie along k.
template <class A, bool K_MAJOR>
struct Shift {
  using Compute = typename A::Compute;
  using Storage = typename A::Storage;
  static constexpr int ROWS = K_MAJOR ? 4 : 32, LANES = K_MAJOR ? 128 : 32, THREADS = ROWS * LANES;

  SR_FN static void run(const ShiftParams& p) {
    const int thread = int(threadIdx.x), blocks = (p.rows + ROWS - 1) / ROWS;
    const int row = K_MAJOR ? thread / LANES : thread % ROWS;
    const int lane = K_MAJOR ? thread % LANES : thread / ROWS;
    const i64 batch = blockIdx.x / u32(blocks);
    const i64 place = i64(blockIdx.x % u32(blocks)) * ROWS + row;
    const i64 i = place < p.rows ? place : p.rows - 1;  // clamped; dropped below
    const Storage* x = static_cast<const Storage*>(p.x) + batch * p.x_batch + i * p.x_row;
    const Compute inf = infinity<Compute>();
    Compute high = -inf, low = inf;
#pragma unroll 8
    for (int k = lane; k < p.depth; k += LANES) {
      const Compute value = A::decode(x[k * p.x_k]);
      high = max(high, value);  // keeps a NaN
      low = value > -inf && value < low ? value : low;
    }
    // lanes join the ends of their row in shared memory
    Compute* highs = shared_memory<Compute>() + lane * ROWS + row;  // [LANES][ROWS], twice
    Compute* lows = highs + THREADS;
    *highs = high;
    *lows = low;
    for (int half = LANES / 2; half > 0; half /= 2) {
      __syncthreads();  // between storing 2 * half pairs and reading them
      if (lane >= half) continue;
      *highs = max(*highs, highs[half * ROWS]);
      const Compute other = lows[half * ROWS];
      if (other < *lows) *lows = other;
    }
    __syncthreads();  // between storing the ends of the rows and reading them
    high = shared_memory<Compute>()[row];
    const Compute shift = high == -inf ? Compute(0) : high;
    if (place >= p.rows) return;
    if (lane == 0) {  // one lane stores the row's ends
      Compute* ends = static_cast<Compute*>(p.ends) + batch * 2 * p.rows + i;
      ends[0] = shift;
      ends[p.rows] = *lows - shift;
    }
    Compute* e = static_cast<Compute*>(p.e) + batch * p.e_batch + i * p.e_row;
#pragma unroll 4
    for (int k = lane; k < p.depth; k += LANES)
      e[k * p.e_k] = lifted(A::decode(x[k * p.x_k]) - shift);
  }
};

// The tile of C of a block: the batch, row and column of its first entry.
template <class Tile>
struct LogTile {
  i64 batch;
  int row, column;

  SR_FN explicit LogTile(const LogSumParams& p) {
    const int tiles = p.tiles_m * p.tiles_n, tile = int(blockIdx.x) % tiles;
    batch = int(blockIdx.x) / tiles;
    row = tile / p.tiles_n * Tile::BM;
    column = tile % p.tiles_n * Tile::BN;
  }
};

// Kernel: C from the sums of shifted exponentials, where they are accurate.
template <class A, class Tile>
struct Settle {
  using Compute = typename A::Compute;

  SR_FN static void run(const LogSumParams& p) {
    const LogTile<Tile> at(p);
    const Compute* rows = static_cast<const Compute*>(p.rows) + at.batch * p.rows_batch;
    const Compute* columns = static_cast<const Compute*>(p.columns) + at.batch * p.columns_batch;
    const LinearCombination<A> combine(p);
    if (threadIdx.x == 0) p.marks[blockIdx.x] = 0;
    __syncthreads();  // between clearing the mark and setting it
    for (int e = int(threadIdx.x); e < Tile::BM * Tile::BN; e += Tile::THREADS) {
      const int i = at.row + e / Tile::BN, j = at.column + e % Tile::BN;
      if (i >= p.m || j >= p.n) continue;
      Compute* sum = static_cast<Compute*>(p.sums) + (at.batch * p.m + i) * p.n + j;
      Compute value;
      if (settled(value, *sum, rows[i], rows[p.m + i], columns[j], columns[p.n + j])) {
        auto* c = static_cast<typename A::Storage*>(p.c) + at.batch * p.c_batch + i * p.c_m +
                  j * p.c_n;
        *c = combine(value, p.mode & READ_C ? *c : typename A::Storage{});
      } else {
        *sum = Compute(-1);  // LogSum computes it
        p.marks[blockIdx.x] = 1;
      }
    }
  }
};

// Kernel: log Σ exp(a ⊗ b) with one exponential a term. Two passes over each tile of k: the
// greatest term so far, then the sum of the exponentials of how far each term is below it.
template <class A, class Tile, bool A_K_MAJOR, bool A_VECTOR, bool B_K_MAJOR, bool B_VECTOR>
struct LogSum {
  using Step = General<A>;
  using Compute = typename A::Compute;
  using Loads = Stage<Step, Tile, A_K_MAJOR, A_VECTOR, B_K_MAJOR, B_VECTOR>;
  static constexpr int WORDS = Loads::WORDS;  // of one of the two stages
  static constexpr int BYTES = 2 * WORDS * int(sizeof(Compute));
  static constexpr int TM = Tile::TM, TN = Tile::TN;

  static constexpr Compute LOG2_E = Compute(1.44269504088896340736);

  Compute high[TM][TN];  // [TM][TN]: the greatest term so far; a NaN stays
  Compute base[TM][TN];  // [TM][TN]: the same times LOG2_E; infinite where no sum can change it
  Compute sum[TM][TN];   // [TM][TN]: of 2^(LOG2_E term - base)

  SR_FN static void run(const LogSumParams& p) {
    if (p.marks && !p.marks[blockIdx.x]) return;
    const LogTile<Tile> at(p);
    Compute* shared = shared_memory<Compute>();  // [2] of [BK][BM + PAD] and [BK][BN + PAD]
    typename Loads::Left left;
    typename Loads::Right right;
    Loads::start(left, right, p, at, 0);
    LogSum block;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        block.high[i][j] = -infinity<Compute>();
        block.base[i][j] = infinity<Compute>();
        block.sum[i][j] = Compute(0);
      }
    Loads::fetch(left, right, shared, p.k);
    Loads::commit(left, right, shared);
    __syncthreads();  // between storing tile 0 and reading it
    for (int k = 0, now = 0; k < p.k; k += Tile::BK, now = WORDS - now) {
      const int rest = p.k - k;
      Compute* next = shared + WORDS - now;
      if (rest > Tile::BK) Loads::fetch(left, right, next, rest - Tile::BK);
      block.take(shared + now, rest < Tile::BK ? rest : int(Tile::BK));
      if (rest > Tile::BK) Loads::commit(left, right, next);
      __syncthreads();  // between reads of tile t and overwriting it; stores of t + 1 and reads
    }
    block.store(p, at);
  }

  // Fold `steps` steps of k of a stage.
  SR_FN void take(const Compute* stage, int steps) {
    const Compute* as = stage + Tile::row(0);
    const Compute* bs = stage + Loads::B + Tile::column(0);
    Fragment<Step, Tile, 1> x;
    // first pass: the greatest term, so that no exponential of the second one overflows
#pragma unroll 8
    for (int k = 0; k < steps; ++k) {
      Loads::load_fragment(x, as, bs, k);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) high[i][j] = max(high[i][j], A::mul(x.a[i][0], x.b[j][0]));
    }
    // the sum so far, relative to the new greatest term
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        const bool counts = abs(high[i][j]) < Limits<Compute>::FLAT;
        const Compute now = counts ? high[i][j] * LOG2_E : infinity<Compute>();
        const bool some = base[i][j] < infinity<Compute>();
        sum[i][j] = some ? sum[i][j] * exp2_approx(base[i][j] - now) : Compute(0);
        base[i][j] = now;
      }
    // second pass: the terms of this tile
#pragma unroll 8
    for (int k = 0; k < steps; ++k) {
      Loads::load_fragment(x, as, bs, k);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
          const Compute y = fma(A::mul(x.a[i][0], x.b[j][0]), LOG2_E, -base[i][j]);
          sum[i][j] = sum[i][j] + exp2_approx(y);
        }
    }
  }

  SR_FN void store(const LogSumParams& p, const LogTile<Tile>& at) const {
    const LinearCombination<A> combine(p);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        const int row = at.row + Tile::row(i), column = at.column + Tile::column(j);
        if (row >= p.m || column >= p.n) continue;
        const i64 place = (at.batch * p.m + row) * p.n + column;
        if (p.sums && !(static_cast<const Compute*>(p.sums)[place] < Compute(0))) continue;
        auto* c = static_cast<typename A::Storage*>(p.c) + at.batch * p.c_batch + row * p.c_m +
                  column * p.c_n;
        Compute value = high[i][j];
        if (base[i][j] < infinity<Compute>()) value = value + log(sum[i][j]);
        *c = combine(value, p.mode & READ_C ? *c : typename A::Storage{});
      }
  }
};

}  // namespace sr

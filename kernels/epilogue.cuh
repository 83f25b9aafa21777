// Accumulators to C: scale, join with C, convert, drop what lies outside of C. Where k is split,
// the blocks of a tile of C first join their accumulators: through each other's shared memory if
// they are a cluster; else these go to memory as partial results, and a second kernel does all that.
#pragma once
#include "schedule.cuh"
#include "steps.cuh"
#include "tile.cuh"

namespace sr {

// α or β from its 8 bytes in the parameters.
template <class A>
SR_FN typename A::Compute scalar(i64 raw) {
  using Compute = typename A::Compute;
  if constexpr (sizeof(Compute) == 8) return bits_as<Compute>(raw);
  else return bits_as<Compute>(u32(raw));
}

// What C gets for a value: (α ⊗ value) ⊕ (β ⊗ old). Sets `errors` where that does not fit.
template <class A>
struct LinearCombination {
  using Compute = typename A::Compute;
  Compute alpha, beta;
  int mode;  // READ_C | ALPHA | BETA
  u32* errors;

  template <class Params>  // of any kernel that has these four fields
  SR_FN explicit LinearCombination(const Params& p)
      : alpha(scalar<A>(p.alpha)), beta(scalar<A>(p.beta)), mode(p.mode), errors(p.errors) {}

  SR_FN typename A::Storage operator()(Compute value, const typename A::Storage& old) const {
    if (mode & ALPHA) value = A::scale(alpha, value);
    if (mode & READ_C) {
      Compute was = A::decode(old);
      if (mode & BETA) was = A::scale(beta, was);
      value = A::add(value, was);
    }
    return stored(value);
  }
  SR_FN typename A::Storage stored(Compute value) const {
    if constexpr (A::CHECK) {
      if (!A::fits(value)) *errors = 1;
    }
    return A::encode(value);
  }
};

// VECTOR: columns of C are adjacent, and groups of GROUP elements aligned, wherever a tile lies.
template <class Step, class Tile, bool VECTOR>
struct Epilogue {
  using Params = ProductParams;
  using A = typename Step::Algebra;
  using Word = typename Step::Word;
  using Storage = typename A::Storage;
  static constexpr int TM = Tile::TM, TN = Tile::TN, VN = Tile::VN;
  // Adjacent elements of C of a thread, and how many of them one store of at most 16 bytes takes.
  static constexpr int RUN = VN * Step::COLUMNS;
  static constexpr int MOST = 16 / int(sizeof(Storage));
  static constexpr int GROUP = !VECTOR ? 1 : RUN < MOST ? RUN : MOST;
  static constexpr int RUNS = TM * TN / VN;  // of a thread
  static_assert(RUN % GROUP == 0, "stores fill a run");
  static_assert(TN % VN == 0, "runs fill a thread's columns");

  SR_FN static void store(const ProductParams& p, const Word (&acc)[TM][TN], const WorkTile& work,
                          const TileCoord<Step, Tile>& at) {
    if (work.split >= 0) return store_partial(p, acc, work);
    // Most tiles: without tests, which take as long as a sixteenth of 128 steps of k.
    const bool inside = at.row + Tile::BM <= p.m && at.column + Tile::BN * Step::COLUMNS <= p.n;
    if (inside && p.mode == 0) store_runs<true>(p, acc, at);
    else store_runs<false>(p, acc, at);
  }
  template <bool PLAIN>
  SR_FN static void store_runs(const ProductParams& p, const Word (&acc)[TM][TN],
                               const TileCoord<Step, Tile>& at) {
    const LinearCombination<A> combine(p);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; j += VN) store_run<PLAIN>(p, combine, acc[i] + j, at, i, j);
  }

  // The run of VN accumulators from [i][j] on. PLAIN: all of it is inside of C, and `mode` is 0.
  template <bool PLAIN = false>
  SR_FN static void store_run(const ProductParams& p, const LinearCombination<A>& combine,
                              const Word* acc, const TileCoord<Step, Tile>& at, int i, int j) {
    const int row = at.row + Tile::row(i);
    const int column = at.column + Tile::column(j) * Step::COLUMNS;
    if (!PLAIN && row >= p.m) return;
    Storage* c = static_cast<Storage*>(p.c) + at.batch * p.c_batch + row * p.c_m;
#pragma unroll
    for (int e = 0; e < RUN; e += GROUP) {
      if (!PLAIN && column + e >= p.n) continue;  // n is a multiple of GROUP if C is written in vectors
      Storage* to = c + (column + e) * (VECTOR ? 1 : p.c_n);
      using Group = Pack<Storage, GROUP>;
      Group group{};  // [GROUP]
      if (!PLAIN && p.mode & READ_C) group = *reinterpret_cast<const Group*>(to);
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {
        const auto x = Step::out(acc[(e + g) / Step::COLUMNS], (e + g) % Step::COLUMNS);
        group.x[g] = PLAIN ? combine.stored(x) : combine(x, group.x[g]);
      }
      *reinterpret_cast<Group*>(to) = group;
    }
  }

  // The tile of C of a cluster, whose blocks have the parts of k in order. Each block joins some of
  // the runs. `shared`: [TM * TN / VN][THREADS][VN], which no thread reads any more.
  SR_FN static void store_cluster(const ProductParams& p, const Word (&acc)[TM][TN], Word* shared,
                                  const TileCoord<Step, Tile>& at) {
    constexpr int N = VN * sizeof(Word) > 16 ? 16 / sizeof(Word) : VN;  // of a vector
    using Group = Pack<Word, N>;
    const auto place = [&](int run, int v) {
      return reinterpret_cast<Group*>(
          shared + (run * Tile::THREADS + int(threadIdx.x)) * VN + v);
    };
#pragma unroll
    for (int run = 0; run < RUNS; ++run)
#pragma unroll
      for (int v = 0; v < VN; v += N) {
        Group group;  // [N]
#pragma unroll
        for (int w = 0; w < N; ++w) group.x[w] = acc[run * VN / TN][run * VN % TN + v + w];
        *place(run, v) = group;
      }
    cluster_sync();  // between storing accumulators and other blocks' reads of them
    const LinearCombination<A> combine(p);
#pragma unroll 1
    for (int run = int(block_of_cluster()); run < RUNS; run += p.splits) {
      Word sum[VN];  // [VN]
#pragma unroll 1
      for (int s = 0; s < p.splits; ++s)
#pragma unroll
        for (int v = 0; v < VN; v += N) {
          const Group group = load_remote(place(run, v), s);  // [N]
#pragma unroll
          for (int w = 0; w < N; ++w)
            sum[v + w] = s ? Step::join(sum[v + w], group.x[w]) : group.x[w];
        }
      store_run(p, combine, sum, at, run * VN / TN, run * VN % TN);
    }
    cluster_sync();  // between other blocks' reads of this one's shared memory and its end
  }

  // This thread's words of a partial result, [TM * TN], which lie THREADS apart: a warp's stores
  // are contiguous, whatever the tile.
  SR_FN static Word* partial(const ProductParams& p, int tile, int split) {
    const i64 index = i64(tile - p.whole) * p.splits + split;
    return static_cast<Word*>(p.partials) + index * (Tile::BM * Tile::BN) + threadIdx.x;
  }
  SR_FN static void store_partial(const ProductParams& p, const Word (&acc)[TM][TN],
                                  const WorkTile& work) {
    Word* to = partial(p, work.tile, work.split);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) to[(i * TN + j) * Tile::THREADS] = acc[i][j];
  }
};

// Kernel: the tiles of C whose k was split, from their partial results, joined in order of k. A
// block for each run of VN accumulators of all threads.
template <class Step, class Tile, bool VECTOR>
struct ReduceSplits {
  using Store = Epilogue<Step, Tile, VECTOR>;
  using Word = typename Step::Word;
  static constexpr int TN = Tile::TN, VN = Tile::VN, RUNS = Store::RUNS;

  SR_FN static void run(const ProductParams& p) {
    if (!is_selected(p)) return;
    const int tile = p.whole + int(blockIdx.x) / RUNS, first = int(blockIdx.x) % RUNS * VN;
    const Word* partial = Store::partial(p, tile, 0) + first * Tile::THREADS;
    Word sum[VN];  // [VN]
#pragma unroll
    for (int v = 0; v < VN; ++v) sum[v] = partial[v * Tile::THREADS];
    for (int s = 1; s < p.splits; ++s) {
      partial += Tile::BM * Tile::BN;
#pragma unroll
      for (int v = 0; v < VN; ++v) sum[v] = Step::join(sum[v], partial[v * Tile::THREADS]);
    }
    const LinearCombination<typename Step::Algebra> combine(p);
    const TileCoord<Step, Tile> at(p, tile);
    Store::store_run(p, combine, sum, at, first / TN, first % TN);
  }
};

}  // namespace sr

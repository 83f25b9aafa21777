// Kernel: the ceiling of an inner step: outer products in registers, fed from shared memory, and
// nothing else. No global memory, no barriers in the loop, no edges. The rate of a product is given
// as a part of this.
//
// A Form has the Word of an accumulator, the DEPTH in steps of k that it folds at once, u32
// entry(random bits), Word start() and Word take(c, a[DEPTH], b[DEPTH], odd, unit).
//
// gpu_ceilings.py puts this text before each loop's entry; the headers are those of kernels/.
#include "steps.cuh"

namespace sr {

struct CeilingParams {
  u32* out;  // [blocks][THREADS]: keeps the compiler from removing the loop
  i32 passes;  // times that the BK steps of k are multiplied
  u32 seed;
  i32 unit;  // 1, which the compiler does not know
};

// Four words at once; volatile, because every pass reads the same words.
template <class Word>
SR_FN void load_again(Word (&x)[4], u32 at) {
  u32 raw[4];
  asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(raw[0]), "=r"(raw[1]), "=r"(raw[2]), "=r"(raw[3]) : "r"(at));
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = bits_as<Word>(raw[i]);
}

SR_FN u32 scrambled(u32 x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// TM x TN accumulators a thread; the body of the loop is STEPS steps of k. PAIRS: two of them lie
// side by side in shared memory, in opposite order in a and b (tile.cuh).
template <class Form, int TM, int TN, int STEPS, bool PAIRS = false>
struct Ceiling {
  using Word = typename Form::Word;
  static constexpr int THREADS = 256, BK = 16, SIDE = 128;  // shared: [BK][SIDE]
  static constexpr int DEPTH = Form::DEPTH;
  static_assert(TM % 4 == 0 && TN % 4 == 0, "words are loaded four at a time");
  static_assert(!PAIRS || DEPTH == 2, "two steps of k are taken at once");
  static_assert(BK % STEPS == 0 && STEPS % DEPTH == 0, "the unrolled body fills BK steps of k");

  SR_FN static void run(const CeilingParams& p) {
    __shared__ __align__(16) u32 as[BK * SIDE], bs[BK * SIDE];  // [BK][SIDE] each
    for (int i = int(threadIdx.x); i < BK * SIDE; i += THREADS) {
      as[i] = Form::entry(scrambled(p.seed + 2 * i));
      bs[i] = Form::entry(scrambled(p.seed + 2 * i + 1));
    }
    __syncthreads();  // between storing as and bs and reading them
    Word acc[TM][TN];  // [TM][TN]
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[i][j] = Form::start();
    const u32 a_at = u32(__cvta_generic_to_shared(as)) + threadIdx.x / 16 * 16;
    const u32 b_at = u32(__cvta_generic_to_shared(bs)) + threadIdx.x % 16 * 16;
#pragma unroll 1
    for (int pass = 0; pass < p.passes; ++pass) {
#pragma unroll STEPS / DEPTH
      for (int k = 0; k < BK; k += DEPTH) {
        Word a[DEPTH][TM], b[DEPTH][TN];  // [DEPTH][TM] and [DEPTH][TN]
        if constexpr (PAIRS) {
          pairs<TM>(a[0], a[1], a_at + k * SIDE * 4);
          pairs<TN>(b[1], b[0], b_at + k * SIDE * 4);
        } else {
#pragma unroll
          for (int d = 0; d < DEPTH; ++d) {
            line<TM>(a[d], a_at + (k + d) * SIDE * 4);
            line<TN>(b[d], b_at + (k + d) * SIDE * 4);
          }
        }
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) {
            Word left[DEPTH], right[DEPTH];  // [DEPTH]
#pragma unroll
            for (int d = 0; d < DEPTH; ++d) left[d] = a[d][i], right[d] = b[d][j];
            acc[i][j] = Form::take(acc[i][j], left, right, (i + j) % 2, p.unit);
          }
      }
    }
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) all ^= bits_as<u32>(acc[i][j]);
    p.out[blockIdx.x * THREADS + threadIdx.x] = all;
  }

  // T words of one step of k; groups of four are 256 bytes apart, and wrap around after two.
  template <int T>
  SR_FN static void line(Word (&x)[T], u32 at) {
#pragma unroll
    for (int q = 0; q < T; q += 4) {
      Word group[4];
      load_again(group, at + q % 8 * 64);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[q + i] = group[i];
    }
  }
  // T words of two steps of k; groups of two are 256 bytes apart, and wrap around after four.
  template <int T>
  SR_FN static void pairs(Word (&x)[T], Word (&y)[T], u32 at) {
#pragma unroll
    for (int q = 0; q < T; q += 2) {
      Word group[4];
      load_again(group, at + q % 8 * 128);
      x[q] = group[0], y[q] = group[1], x[q + 1] = group[2], y[q + 1] = group[3];
    }
  }
};

// The form of a step policy (steps.cuh).
template <class S>
struct Formed {
  using Word = typename S::Word;
  static constexpr int DEPTH = S::DEPTH;
  static_assert(sizeof(Word) == 4, "words are loaded as 32 bits");

  // Bits of a float in [1, 2), of a small integer, of 32 truth values: no special cases.
  SR_FN static u32 entry(u32 r) {
    if constexpr (Is<Word>::floating) return 0x3f800000u | r >> 9;
    else return Word(-1) < Word(0) ? r >> 22 : r;
  }
  SR_FN static Word start() { return S::start(); }
  SR_FN static Word take(Word c, const Word* a, const Word* b, bool odd, i32 unit) {
    if constexpr (S::MIXED) {
      if (odd) S::take_mixed(c, a, b, unit);
      else S::take(c, a, b);
    } else {
      S::take(c, a, b);
    }
    return c;
  }
};

}  // namespace sr

// Scalars: their names, NumPy's rules for them, and the instructions that C++ has no name for.
//
// The same file compiles for the device and, with SR_HOST, for the host: whatever is not portable
// C++ stands in this file, once as an instruction and once as plain code.
#pragma once

#ifdef SR_HOST
#include "host.h"  // threads, barriers and shared memory of a block, on the host
#define SR_FN inline
#define SR_CALL inline
#else
#define SR_FN __device__ __forceinline__
#define SR_CALL __device__ __noinline__  // long functions: a copy in each accumulator would not do
#endif

namespace sr {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;

template <class To, class From>
SR_FN To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From), "a reinterpretation keeps the size");
  return __builtin_bit_cast(To, x);
}

// --- 16-bit floats: stored as their bits, computed with in float or by pairs in a 32-bit word ---

struct half {
  u16 bits;
};
struct bfloat {
  u16 bits;
};

template <class T>
struct Is { static constexpr bool floating = false, half = false; };
template <>
struct Is<float> { static constexpr bool floating = true, half = false; };
template <>
struct Is<double> { static constexpr bool floating = true, half = false; };
template <>
struct Is<sr::half> { static constexpr bool floating = true, half = true; };

// What tensor cores multiply, and add up in: K steps of k at a time, which are 32 bytes.
struct Halves { using Element = half; using Sum = float; static constexpr int K = 16; };
struct Bfloats { using Element = bfloat; using Sum = float; static constexpr int K = 16; };
struct Tf32 { using Element = float; using Sum = float; static constexpr int K = 8; };
struct Bytes { using Element = u8; using Sum = i32; static constexpr int K = 32; };

SR_FN float to_float(bfloat x) { return bits_as<float>(u32(x.bits) << 16); }

SR_FN bfloat to_bfloat(float x) {  // to the nearest even; a NaN stays one
  u32 raw = bits_as<u32>(x);
  if (x != x) return bfloat{u16((raw >> 16) | 0x40u)};
  return bfloat{u16((raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16)};
}

#ifdef SR_HOST
SR_FN float to_float(half x) {
  u32 sign = u32(x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return bits_as<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x400u) return bits_as<float>(sign | ((rest << 13) + 0x38000000u));
  float tiny = float(rest) * 5.9604644775390625e-8f;  // denormals are multiples of 2^-24
  return bits_as<float>(sign | bits_as<u32>(tiny));
}
SR_FN half to_half(float x) {
  u32 raw = bits_as<u32>(x), sign = raw >> 16 & 0x8000u, rest = raw & 0x7fffffffu;
  if (rest > 0x7f800000u) return half{u16(sign | 0x7e00u)};
  if (rest >= 0x47800000u) return half{u16(sign | 0x7c00u)};
  if (rest < 0x38800000u) {  // a denormal: the float adder rounds to multiples of 2^-24
    float shifted = bits_as<float>(rest) + 0.5f;
    return half{u16(sign | (bits_as<u32>(shifted) - 0x3f000000u))};
  }
  return half{u16(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13))};
}
#else
SR_FN float to_float(half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
SR_FN half to_half(float x) {
  half y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
#endif

// The nearest number of 11 significant bits, which tensor cores take; never infinite for a finite one.
SR_FN float to_tf32(float x) {
  const u32 raw = bits_as<u32>(x), near = (raw + 0x1000u) & 0xffffe000u;
  const bool far = (near & 0x7f800000u) == 0x7f800000u;  // infinite, or would be
  if (x != x) return x;
  return bits_as<float>(far ? raw & 0xffffe000u : near);
}

// --- what the expressions of a semiring call --------------------------------------------------

template <class T>
SR_FN T infinity() {
  return T(bits_as<float>(0x7f800000u));
}

template <class T>
SR_FN T min(T a, T b) {
  return (a < b || a != a) ? a : b;  // for integers the second test is never true
}
template <class T>
SR_FN T max(T a, T b) {
  return (a > b || a != a) ? a : b;
}
#if !defined(SR_HOST) && __CUDA_ARCH__ >= 800
template <>
SR_FN float min<float>(float a, float b) {
  float c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
template <>
SR_FN float max<float>(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
#endif
#define SR_INTEGER_EXTREMA(T)                            \
  template <>                                            \
  SR_FN T min<T>(T a, T b) { return a < b ? a : b; }     \
  template <>                                            \
  SR_FN T max<T>(T a, T b) { return a > b ? a : b; }
SR_INTEGER_EXTREMA(i32)
SR_INTEGER_EXTREMA(i64)
#undef SR_INTEGER_EXTREMA

template <class T>
SR_FN T abs(T x) {
  return x < T(0) ? -x : x;
}
SR_FN float abs(float x) { return fabsf(x); }
SR_FN double abs(double x) { return fabs(x); }

SR_FN float fma(float x, float y, float z) { return fmaf(x, y, z); }
SR_FN double fma(double x, double y, double z) { return ::fma(x, y, z); }
SR_FN float exp(float x) { return expf(x); }
SR_FN float log(float x) { return logf(x); }
SR_FN float log1p(float x) { return log1pf(x); }
SR_FN float expm1(float x) { return expm1f(x); }
SR_FN float sqrt(float x) { return sqrtf(x); }
SR_CALL double exp(double x) { return ::exp(x); }
SR_CALL double log(double x) { return ::log(x); }
SR_CALL double log1p(double x) { return ::log1p(x); }
SR_CALL double expm1(double x) { return ::expm1(x); }
SR_FN double sqrt(double x) { return ::sqrt(x); }

template <class T>
SR_FN T logaddexp(T a, T b) {
  T high = max(a, b), low = a > b ? b : a;
  if (low == high) return high + T(0.693147180559945309417);  // two infinities of a sign, too
  return high + log1p(exp(low - high));
}

// 2^x for sums of many terms, within 2 units in the last place; what would be denormal is zero.
#ifndef SR_HOST
SR_FN float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
SR_FN float exp2_approx(float x) { return exp2f(x); }
#endif
SR_FN double exp2_approx(double x) { return ::exp2(x); }

// Floor division and its remainder as NumPy has them, division by zero included.
template <class T>
SR_CALL T floor_mod(T x, T y) {
  if constexpr (Is<T>::floating) {
    T rest = T(fmod(x, y));
    if (rest == T(0)) return T(copysign(T(0), y));
    return (rest < T(0)) != (y < T(0)) ? rest + y : rest;
  } else {
    if (y == 0) return T(0);
    T rest = y == T(-1) ? T(0) : T(x % y);
    return rest != 0 && (rest ^ y) < 0 ? T(rest + y) : rest;
  }
}
template <class T>
SR_CALL T floor_div(T x, T y) {
  if constexpr (Is<T>::floating) {
    if (y == T(0)) return x / y;
    T rest = T(fmod(x, y)), quotient = (x - rest) / y;
    if (rest != T(0) && (rest < T(0)) != (y < T(0))) quotient -= T(1);
    T whole = T(floor(quotient));
    if (quotient - whole > T(0.5)) whole += T(1);
    return quotient == T(0) ? T(copysign(T(0), x / y)) : whole;
  } else {
    if (y == 0) return T(0);
    if (y == T(-1)) return T(0) - x;
    T quotient = x / y;
    return x % y != 0 && ((x % y) ^ y) < 0 ? T(quotient - 1) : quotient;
  }
}

// --- instructions -----------------------------------------------------------------------------

// Minimum and maximum of three signed integers, and of the two halves of three words.
#if !defined(SR_HOST) && __CUDA_ARCH__ >= 900
SR_FN i32 min3(i32 a, i32 b, i32 c) { return __vimin3_s32(a, b, c); }
SR_FN i32 max3(i32 a, i32 b, i32 c) { return __vimax3_s32(a, b, c); }
SR_FN u32 min3_x2(u32 a, u32 b, u32 c) { return __vimin3_s16x2(a, b, c); }
SR_FN u32 max3_x2(u32 a, u32 b, u32 c) { return __vimax3_s16x2(a, b, c); }
SR_FN i32 add_min(i32 a, i32 b, i32 c) { return __viaddmin_s32(a, b, c); }
SR_FN i32 add_max(i32 a, i32 b, i32 c) { return __viaddmax_s32(a, b, c); }
SR_FN u32 add_min_x2(u32 a, u32 b, u32 c) { return __viaddmin_s16x2(a, b, c); }
SR_FN u32 add_max_x2(u32 a, u32 b, u32 c) { return __viaddmax_s16x2(a, b, c); }
#else
SR_FN u32 both(i32 low, i32 high) { return u32(low & 0xffff) | u32(high) << 16; }
SR_FN i32 low_half(u32 x) { return i32(i16(x & 0xffffu)); }
SR_FN i32 high_half(u32 x) { return i32(x) >> 16; }
SR_FN i32 min3(i32 a, i32 b, i32 c) { return min(min(a, b), c); }
SR_FN i32 max3(i32 a, i32 b, i32 c) { return max(max(a, b), c); }
SR_FN u32 min3_x2(u32 a, u32 b, u32 c) {
  return both(min3(low_half(a), low_half(b), low_half(c)),
              min3(high_half(a), high_half(b), high_half(c)));
}
SR_FN u32 max3_x2(u32 a, u32 b, u32 c) {
  return both(max3(low_half(a), low_half(b), low_half(c)),
              max3(high_half(a), high_half(b), high_half(c)));
}
SR_FN i32 add_min(i32 a, i32 b, i32 c) { return min(i32(u32(a) + u32(b)), c); }
SR_FN i32 add_max(i32 a, i32 b, i32 c) { return max(i32(u32(a) + u32(b)), c); }
SR_FN u32 add_min_x2(u32 a, u32 b, u32 c) {
  return both(min(low_half(u32(low_half(a) + low_half(b))), low_half(c)),
              min(low_half(u32(high_half(a) + high_half(b))), high_half(c)));
}
SR_FN u32 add_max_x2(u32 a, u32 b, u32 c) {
  return both(max(low_half(u32(low_half(a) + low_half(b))), low_half(c)),
              max(low_half(u32(high_half(a) + high_half(b))), high_half(c)));
}
#endif

// Pairs of 16-bit floats in a word: T is half or bfloat. Sums and products are rounded once.
#if !defined(SR_HOST) && __CUDA_ARCH__ >= 900
#define SR_PAIR(NAME, HALF, BFLOAT)                           \
  template <class T>                                          \
  SR_FN u32 NAME(u32 a, u32 b) {                              \
    u32 c;                                                    \
    if constexpr (Is<T>::half)                                \
      asm(HALF " %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));    \
    else                                                      \
      asm(BFLOAT " %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));  \
    return c;                                                 \
  }
SR_PAIR(add_x2, "add.rn.f16x2", "add.rn.bf16x2")
SR_PAIR(mul_x2, "mul.rn.f16x2", "mul.rn.bf16x2")
SR_PAIR(min_x2, "min.NaN.f16x2", "min.NaN.bf16x2")
SR_PAIR(max_x2, "max.NaN.f16x2", "max.NaN.bf16x2")
#undef SR_PAIR
#else
SR_FN half round_to(float x, half) { return to_half(x); }
SR_FN bfloat round_to(float x, bfloat) { return to_bfloat(x); }
template <class T, class F>
SR_FN u32 by_halves(u32 a, u32 b, F f) {
  T low = round_to(f(to_float(T{u16(a & 0xffffu)}), to_float(T{u16(b & 0xffffu)})), T{});
  T high = round_to(f(to_float(T{u16(a >> 16)}), to_float(T{u16(b >> 16)})), T{});
  return u32(low.bits) | u32(high.bits) << 16;
}
template <class T>
SR_FN u32 add_x2(u32 a, u32 b) {
  return by_halves<T>(a, b, [](float x, float y) { return x + y; });
}
template <class T>
SR_FN u32 mul_x2(u32 a, u32 b) {
  return by_halves<T>(a, b, [](float x, float y) { return x * y; });
}
template <class T>
SR_FN u32 min_x2(u32 a, u32 b) {
  return by_halves<T>(a, b, [](float x, float y) { return min(x, y); });
}
template <class T>
SR_FN u32 max_x2(u32 a, u32 b) {
  return by_halves<T>(a, b, [](float x, float y) { return max(x, y); });
}
#endif

// d += A B by a warp, of 16 x K times K x 8: see matrix.cuh for what a lane holds. `a` and `below` are of
// rows l / 4 and l / 4 + 8.
#ifndef SR_HOST
template <class Kind>
SR_FN void matrix_multiply(float (&d)[4], const u32 (&a)[2], const u32 (&below)[2],
                           const u32 (&b)[2]) {
#define SR_MATRIX(SHAPE, TYPES)                                                               \
  asm("mma.sync.aligned." SHAPE ".row.col.f32." TYPES ".f32 {%0, %1, %2, %3}, "                \
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                         \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                        \
      : "r"(a[0]), "r"(below[0]), "r"(a[1]), "r"(below[1]), "r"(b[0]), "r"(b[1]))
#if __CUDA_ARCH__ >= 800
  if constexpr (Kind::K == 8) SR_MATRIX("m16n8k8", "tf32.tf32");
  else if constexpr (Is<typename Kind::Element>::half) SR_MATRIX("m16n8k16", "f16.f16");
  else SR_MATRIX("m16n8k16", "bf16.bf16");
#endif
#undef SR_MATRIX
}
#else
template <class Kind>
SR_FN void matrix_multiply(float (&d)[4], const u32 (&a)[2], const u32 (&below)[2],
                           const u32 (&b)[2]) {
  static u32 all[host::THREADS][3][2];
  const unsigned own = threadIdx.x, first = own / 32 * 32, high = own % 32 / 4, low = own % 4;
  for (int half = 0; half < 2; ++half) {
    all[own][0][half] = a[half];
    all[own][1][half] = below[half];
    all[own][2][half] = b[half];
  }
  __syncwarp();  // all operands are there
  constexpr int HALF = Kind::K / 2, EACH = HALF / 4;  // steps of k in a half, and of a lane in it
  const auto value = [](const u32 (&x)[2], int k) {
    const u32 word = x[k / HALF];
    if constexpr (Kind::K == 8) return bits_as<float>(word & 0xffffe000u);
    else return to_float(typename Kind::Element{u16(word >> 16 * (k % EACH))});
  };
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < Kind::K; ++k) {
      const unsigned lane = unsigned(k % HALF / EACH);
      d[i] += value(all[first + high * 4 + lane][i / 2], k) *
              value(all[first + (low * 2 + i % 2) * 4 + lane][2], k);
    }
  __syncwarp();  // all have read
}
#endif

// The word of the lane whose number differs in the bits of `mask`; all lanes of the warp take part.
#ifndef SR_HOST
template <class Word>
SR_FN Word from_lane(Word x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
#else
template <class Word>
SR_FN Word from_lane(Word x, int mask) {
  static Word lanes[host::THREADS];
  lanes[threadIdx.x] = x;
  __syncwarp();  // all words are there
  const Word found = lanes[threadIdx.x ^ unsigned(mask)];
  __syncwarp();  // all have read
  return found;
}
#endif

// Copies of 4 or 16 bytes from global to shared memory that go on beside the arithmetic.
#if !defined(SR_HOST) && __CUDA_ARCH__ >= 800
template <int BYTES>
SR_FN void copy_async(void* shared, const void* global) {
  u32 to = u32(__cvta_generic_to_shared(shared));
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global));
}
SR_FN void copies_issued() { asm volatile("cp.async.commit_group;"); }
template <int PENDING>
SR_FN void copies_wait() {  // until at most so many groups are under way
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
}
#else
template <int BYTES>
SR_FN void copy_async(void* shared, const void* global) {
  for (int i = 0; i < BYTES / 4; ++i)
    static_cast<u32*>(shared)[i] = static_cast<const u32*>(global)[i];
}
SR_FN void copies_issued() {}
template <int PENDING>
SR_FN void copies_wait() {}
#endif

// Joins bits into a word that other blocks write, too.
#ifndef SR_HOST
SR_FN void atomic_or(u32* word, u32 bits) { atomicOr(word, bits); }
#else
SR_FN void atomic_or(u32* word, u32 bits) { *word |= bits; }  // one thread at a time
#endif

// The block's dynamic shared memory.
#ifndef SR_HOST
template <class T>
SR_FN T* shared_memory() {
  extern __shared__ __align__(16) unsigned char sr_shared[];
  return reinterpret_cast<T*>(sr_shared);
}
#endif

// Several scalars that are loaded and stored at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T x[N];  // [N]
};

// 16 bytes of what is read once and not written: it need not push other things out of the cache.
#if !defined(SR_HOST)
SR_FN Pack<u32, 4> load_once(const void* from) {
  Pack<u32, 4> x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x[0]), "=r"(x.x[1]), "=r"(x.x[2]), "=r"(x.x[3]) : "l"(from));
  return x;
}
// The compiler may not put off loads that come before until their values are needed.
SR_FN void loads_issued() { asm volatile("" ::: "memory"); }
#else
SR_FN void loads_issued() {}
SR_FN Pack<u32, 4> load_once(const void* from) { return *static_cast<const Pack<u32, 4>*>(from); }
#endif

// What a thread reads at once: 16 bytes, kept as words until an element is looked at, or an element.
template <class T, bool WIDE>
struct Chunk {
  static constexpr int V = 16 / int(sizeof(T));  // elements
  Pack<u32, 4> words;

  SR_FN void load(const T* from) { words = *reinterpret_cast<const Pack<u32, 4>*>(from); }
  SR_FN void load_once(const T* from) { words = sr::load_once(from); }
  SR_FN T operator[](int v) const {
    const u32* word = words.x;
    if constexpr (sizeof(T) == 8) return bits_as<T>(word[2 * v] | u64(word[2 * v + 1]) << 32);
    else if constexpr (sizeof(T) == 4) return bits_as<T>(word[v]);
    else if constexpr (sizeof(T) == 2) return bits_as<T>(u16(word[v / 2] >> 16 * (v % 2)));
    else return bits_as<T>(u8(word[v / 4] >> 8 * (v % 4)));
  }
};
template <class T>
struct Chunk<T, false> {
  static constexpr int V = 1;
  T x;

  SR_FN void load(const T* from) { x = *from; }
  SR_FN void load_once(const T* from) { x = *from; }
  SR_FN T operator[](int) const { return x; }
};

}  // namespace sr

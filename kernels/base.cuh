// Arithmetic on scalars, by NumPy's rules: what the expressions of a semiring call, and vector
// loads.
//
// Where an architecture has an instruction, `#if __CUDA_ARCH__` takes it; the other branch is
// portable and also the host's.
#pragma once
#include "types.cuh"
#include <instructions.cuh>  // angle brackets: the tests put the host's own before it

namespace sr {

// Round to nearest even with 11 significant bits, as tensor cores take float32. What rounds up to
// 2^128 is infinite, as where the copy engine rounds.
SR_FN float to_tf32(float x) {
  const u32 raw = bits_as<u32>(x);
  return x != x ? x : bits_as<float>((raw + 0xfffu + (raw >> 13 & 1u)) & 0xffffe000u);
}

// --- functions of semiring expressions ---------------------------------------------------------

// ∞ of a floating type.
template <class T>
SR_FN T infinity() {
  return T(bits_as<float>(0x7f800000u));
}

// NaN wins, as in NumPy.
template <class T>
SR_FN T min(T a, T b) {
  return (a < b || a != a) ? a : b;  // for integers the second test is never true
}
template <class T>
SR_FN T max(T a, T b) {
  return (a > b || a != a) ? a : b;
}
#if __CUDA_ARCH__ >= 800
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
// Without the test for NaN, which the compiler does not always remove.
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
// Long in double precision: called, not inlined.
SR_CALL double exp(double x) { return ::exp(x); }
SR_CALL double log(double x) { return ::log(x); }
SR_CALL double log1p(double x) { return ::log1p(x); }
SR_CALL double expm1(double x) { return ::expm1(x); }
SR_FN double sqrt(double x) { return ::sqrt(x); }

// log(exp(a) + exp(b)); NaN wins.
template <class T>
SR_FN T logaddexp(T a, T b) {
  T high = max(a, b), low = a > b ? b : a;
  if (low == high) return high + T(0.693147180559945309417);  // log 2; also for equal infinities
  return high + log1p(exp(low - high));
}

// 1 / x for x > 0, with an error of the last bit or two: a division takes three times as long.
SR_FN double inverse_of(double x) {
#if defined(__CUDA_ARCH__)
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  const double e = ::fma(-x, y, 1.0);
  return ::fma(y, ::fma(e, e, e), y);  // the error, below 2^-20, to its third power
#else
  return 1.0 / x;
#endif
}

SR_FN double exp2_approx(double x) { return ::exp2(x); }

// Remainder and quotient of floor division (np.mod, np.floor_divide), also by zero: 0 for integers,
// NaN or infinity for floats. -1 is apart because the least integer over -1 overflows.
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
    T whole = T(floor(quotient));  // the quotient may lie just below an integer
    if (quotient - whole > T(0.5)) whole += T(1);
    return quotient == T(0) ? T(copysign(T(0), x / y)) : whole;
  } else {
    if (y == 0) return T(0);
    if (y == T(-1)) return T(0) - x;
    T quotient = x / y;
    return x % y != 0 && ((x % y) ^ y) < 0 ? T(quotient - 1) : quotient;
  }
}

// --- instructions that newer chips have, and the same in plain C++ -----------------------------

// Minimum and maximum of three signed integers, and of a sum and a third; _x2: of the two 16-bit
// halves of a word each. Sums wrap around.
#if __CUDA_ARCH__ >= 900
SR_FN i32 min3(i32 a, i32 b, i32 c) { return __vimin3_s32(a, b, c); }
SR_FN i32 max3(i32 a, i32 b, i32 c) { return __vimax3_s32(a, b, c); }
SR_FN u32 min3_x2(u32 a, u32 b, u32 c) { return __vimin3_s16x2(a, b, c); }
SR_FN u32 max3_x2(u32 a, u32 b, u32 c) { return __vimax3_s16x2(a, b, c); }
SR_FN i32 add_min(i32 a, i32 b, i32 c) { return __viaddmin_s32(a, b, c); }
SR_FN i32 add_max(i32 a, i32 b, i32 c) { return __viaddmax_s32(a, b, c); }
SR_FN u32 add_min_x2(u32 a, u32 b, u32 c) { return __viaddmin_s16x2(a, b, c); }
SR_FN u32 add_max_x2(u32 a, u32 b, u32 c) { return __viaddmax_s16x2(a, b, c); }
#else
SR_FN u32 halves(i32 low, i32 high) { return u32(low & 0xffff) | u32(high) << 16; }
SR_FN i32 low_half(u32 x) { return i32(i16(x & 0xffffu)); }
SR_FN i32 high_half(u32 x) { return i32(x) >> 16; }
SR_FN i32 min3(i32 a, i32 b, i32 c) { return min(min(a, b), c); }
SR_FN i32 max3(i32 a, i32 b, i32 c) { return max(max(a, b), c); }
SR_FN u32 min3_x2(u32 a, u32 b, u32 c) {
  return halves(min3(low_half(a), low_half(b), low_half(c)),
                min3(high_half(a), high_half(b), high_half(c)));
}
SR_FN u32 max3_x2(u32 a, u32 b, u32 c) {
  return halves(max3(low_half(a), low_half(b), low_half(c)),
                max3(high_half(a), high_half(b), high_half(c)));
}
SR_FN i32 add_min(i32 a, i32 b, i32 c) { return min(i32(u32(a) + u32(b)), c); }
SR_FN i32 add_max(i32 a, i32 b, i32 c) { return max(i32(u32(a) + u32(b)), c); }
SR_FN u32 add_min_x2(u32 a, u32 b, u32 c) {
  return halves(min(low_half(u32(low_half(a) + low_half(b))), low_half(c)),
                min(low_half(u32(high_half(a) + high_half(b))), high_half(c)));
}
SR_FN u32 add_max_x2(u32 a, u32 b, u32 c) {
  return halves(max(low_half(u32(low_half(a) + low_half(b))), low_half(c)),
                max(low_half(u32(high_half(a) + high_half(b))), high_half(c)));
}
#endif

// Four of the eight bytes of x and y by their numbers, the digits of `which` from the lowest on; with
// 8 added to a digit all bits are the byte's sign.
SR_FN u32 permute_bytes(u32 x, u32 y, u32 which) {
#if defined(__CUDA_ARCH__)
  u32 z;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(which));
  return z;
#else
  u32 z = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 digit = which >> 4 * i & 15u, of = digit & 7u;
    const u32 byte = (of < 4 ? x : y) >> 8 * (of % 4) & 0xffu;
    z |= (digit < 8 ? byte : byte >> 7 ? 0xffu : 0u) << 8 * i;
  }
  return z;
#endif
}

// Pairs of 16-bit floats in a word, T being half or bfloat. Sums and products are rounded once; NaN
// wins in minimum and maximum.
#if __CUDA_ARCH__ >= 800
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
#if __CUDA_ARCH__ >= 900
SR_PAIR(add_x2, "add.rn.f16x2", "add.rn.bf16x2")
SR_PAIR(mul_x2, "mul.rn.f16x2", "mul.rn.bf16x2")
#else  // a + b and a * b of bfloats as multiply-adds, which are rounded once too
SR_FN u32 fma_bfloats(u32 a, u32 b, u32 c) {
  u32 d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
template <class T>
SR_FN u32 add_x2(u32 a, u32 b) {
  if constexpr (!Is<T>::half) return fma_bfloats(a, 0x3f803f80u, b);
  u32 c;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}
template <class T>
SR_FN u32 mul_x2(u32 a, u32 b) {
  if constexpr (!Is<T>::half) return fma_bfloats(a, b, 0x80008000u);
  u32 c;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}
#endif
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

// Two floats by one instruction, where the chip has such; x times, or plus, each of y.
struct Two { float x, y; };
#if __CUDA_ARCH__ >= 1000
SR_FN u64 packed(float x, float y) { return u64(bits_as<u32>(y)) << 32 | bits_as<u32>(x); }
SR_FN Two unpacked(u64 x) { return {bits_as<float>(u32(x)), bits_as<float>(u32(x >> 32))}; }
SR_FN Two add_x2(float x, Two y) {
  u64 sum;
  asm("add.rn.f32x2 %0, %1, %2;" : "=l"(sum) : "l"(packed(x, x)), "l"(packed(y.x, y.y)));
  return unpacked(sum);
}
SR_FN Two mul_x2(float x, Two y) {
  u64 product;
  asm("mul.rn.f32x2 %0, %1, %2;" : "=l"(product) : "l"(packed(x, x)), "l"(packed(y.x, y.y)));
  return unpacked(product);
}
SR_FN Two fma_x2(float x, Two y, Two z) {
  u64 sum;
  asm("fma.rn.f32x2 %0, %1, %2, %3;"
      : "=l"(sum) : "l"(packed(x, x)), "l"(packed(y.x, y.y)), "l"(packed(z.x, z.y)));
  return unpacked(sum);
}
#else
SR_FN Two add_x2(float x, Two y) { return {x + y.x, x + y.y}; }
SR_FN Two mul_x2(float x, Two y) { return {x * y.x, x * y.y}; }
SR_FN Two fma_x2(float x, Two y, Two z) { return {fma(x, y.x, z.x), fma(x, y.y, z.y)}; }
#endif

// --- vector loads ------------------------------------------------------------------------------

// What a thread loads at once: 16 bytes, kept as words until an element is read; or, if not VECTOR,
// one element. V: elements.
template <class T, bool VECTOR>
struct Chunk {
  static constexpr int V = 16 / int(sizeof(T));
  static_assert(V * sizeof(T) == 16, "elements fill 16 bytes");
  Pack<u32, 4> words;  // [4], of V elements

  SR_FN void load(const T* from) { words = *reinterpret_cast<const Pack<u32, 4>*>(from); }
  SR_FN void load_streaming(const T* from) { words = sr::load_streaming(from); }
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
  SR_FN void load_streaming(const T* from) { x = *from; }
  SR_FN T operator[](int) const { return x; }
};

}  // namespace sr

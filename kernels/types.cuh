// Scalar types and how they lie in memory. Portable C++: the host compiles this file as it is.
#pragma once

#define SR_FN __device__ __forceinline__
#define SR_CALL __device__ __noinline__  // long functions: not inlined once for each accumulator

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

template <bool FIRST, class X, class Y>
struct Choose { using Type = X; };
template <class X, class Y>
struct Choose<false, X, Y> { using Type = Y; };

// --- 16-bit floats: stored as their bits, computed with in float or by pairs in a 32-bit word --

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

SR_FN float to_float(bfloat x) { return bits_as<float>(u32(x.bits) << 16); }

SR_FN bfloat to_bfloat(float x) {  // round to nearest even; NaN stays NaN
  u32 raw = bits_as<u32>(x);
  if (x != x) return bfloat{u16((raw >> 16) | 0x40u)};
  return bfloat{u16((raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16)};
}

// Operand types of tensor cores: an instruction multiplies K steps of k (32 bytes) and accumulates
// in Sum.
struct Halves { using Element = half; using Sum = float; static constexpr int K = 16; };
struct Bfloats { using Element = bfloat; using Sum = float; static constexpr int K = 16; };
struct Tf32 { using Element = float; using Sum = float; static constexpr int K = 8; };
struct Floats { using Element = float; using Sum = float; static constexpr int K = 1; };  // no instruction
struct Doubles { using Element = double; using Sum = double; static constexpr int K = 4; };
struct Binary { using Element = u8; using Sum = i32; static constexpr int K = 32; };  // 8 a byte

// N scalars in one vector access, aligned to their size together.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  static_assert((N & (N - 1)) == 0, "an alignment is a power of two");
  T x[N];  // [N]
};

}  // namespace sr

// Inner steps: how an accumulator takes up one or two steps of k.
//
// A step says what a register word is. `Word` holds `COLUMNS` adjacent columns of C; `left` makes one
// from an element of A (the same in every column) and `right` from `ELEMENTS` adjacent elements of B.
// `take` folds `DEPTH` steps of k into an accumulator, `one` a single step, `out` reads a column.
//
// General is right for every algebra; each of the others is faster for some of them and equal to it
// bit for bit on the operands for which it is chosen.
#pragma once
#include "base.cuh"

namespace sr {

template <class A>
struct General {
  using Algebra = A;
  using Word = typename A::Compute;
  using Left = typename A::Storage;
  using Right = typename A::Storage;
  static constexpr int COLUMNS = 1, ELEMENTS = 1, DEPTH = 1;
  // Whether words lie in memory as they are computed with, so that copies need no registers.
  static constexpr bool PLAIN = A::PLAIN && sizeof(Word) == 4;
  static constexpr bool MIXED = false;  // whether every other accumulator goes by take_mixed
  static constexpr bool SHORT = A::FUSED;  // whether a step is one instruction an accumulator

  SR_FN static Word start() { return A::start(); }
  SR_FN static Word left(Left x) { return A::decode(x); }
  SR_FN static Word right(const Right* x) { return A::decode(x[0]); }
  SR_FN static void one(Word& acc, Word a, Word b) { acc = A::fold(acc, a, b); }
  SR_FN static void take(Word& acc, const Word* a, const Word* b) { one(acc, a[0], b[0]); }
  SR_FN static Word join(Word x, Word y) { return A::add(x, y); }
  SR_FN static typename A::Compute out(Word x, int) { return x; }
};

// min or max of float sums or products that are all >= 0: their bits order as integers do, and one
// three-input instruction takes two steps of k.
template <class A>
struct Nonnegative : General<A> {
  using Word = float;
  static constexpr int DEPTH = 2;

  SR_FN static Word start() { return A::LEAST ? infinity<float>() : 0.0f; }
  SR_FN static void one(Word& acc, Word a, Word b) {
    i32 x = bits_as<i32>(acc), y = bits_as<i32>(A::mul(a, b));
    acc = bits_as<float>(A::LEAST ? min(x, y) : max(x, y));
  }
  SR_FN static void take(Word& acc, const Word* a, const Word* b) {
    i32 x = bits_as<i32>(acc), y = bits_as<i32>(A::mul(a[0], b[0])),
        z = bits_as<i32>(A::mul(a[1], b[1]));
    acc = bits_as<float>(A::LEAST ? min3(x, y, z) : max3(x, y, z));
  }
};

// ⊕ and ⊗ both min or max, on 32-bit integers or on keys that order as floats do.
template <class A>
struct Ordered : General<A> {
  using Word = i32;
  static constexpr int DEPTH = 2;

  SR_FN static void take(Word& acc, const Word* a, const Word* b) {
    i32 y = A::mul(a[0], b[0]), z = A::mul(a[1], b[1]);
    acc = A::LEAST ? min3(acc, y, z) : max3(acc, y, z);
  }
};

// min or max of 32-bit sums: half the accumulators by add-and-minimum instructions, half by
// multiply-adds (with a one that the compiler does not know) and three-input minima, which run on
// different pipes.
template <class A>
struct Sums : General<A> {
  using Word = i32;
  static constexpr int DEPTH = 2;
  static constexpr bool MIXED = true;

  SR_FN static void one(Word& acc, Word a, Word b) {
    acc = A::LEAST ? add_min(a, b, acc) : add_max(a, b, acc);
  }
  SR_FN static void take(Word& acc, const Word* a, const Word* b) {
    one(acc, a[0], b[0]);
    one(acc, a[1], b[1]);
  }
  SR_FN static void take_mixed(Word& acc, const Word* a, const Word* b, i32 unit) {
    i32 y = a[0] * unit + b[0], z = a[1] * unit + b[1];
    acc = A::LEAST ? min3(acc, y, z) : max3(acc, y, z);
  }
};

// Two columns to a word.
template <class A>
struct Paired {
  using Algebra = A;
  using Word = u32;
  using Left = typename A::Storage;
  using Right = typename A::Storage;
  static constexpr int COLUMNS = 2, ELEMENTS = 2, DEPTH = 1;
  static constexpr bool PLAIN = false, MIXED = false, SHORT = true;
  static_assert(sizeof(Left) == 2, "two columns fit a word");

  SR_FN static u16 raw(Left x) {
    if constexpr (A::INTEGER) return u16(A::decode(x));
    else return bits_as<u16>(x);
  }
  SR_FN static Word left(Left x) { return u32(raw(x)) * 0x10001u; }
  SR_FN static Word right(const Right* x) { return u32(raw(x[0])) | u32(raw(x[1])) << 16; }
  SR_FN static typename A::Compute out(Word x, int column) {
    u16 own = u16(column ? x >> 16 : x & 0xffffu);
    if constexpr (A::INTEGER) return typename A::Compute(i16(own));
    else return A::decode(bits_as<Left>(own));
  }
};

// min or max of 16-bit integer sums.
template <class A>
struct SumsPaired : Paired<A> {
  using Word = u32;
  SR_FN static Word start() { return u32(u16(A::start())) * 0x10001u; }
  SR_FN static void one(Word& acc, Word a, Word b) {
    acc = A::LEAST ? add_min_x2(a, b, acc) : add_max_x2(a, b, acc);
  }
  SR_FN static void take(Word& acc, const Word* a, const Word* b) { one(acc, a[0], b[0]); }
  SR_FN static Word join(Word x, Word y) {
    return A::LEAST ? min3_x2(x, y, y) : max3_x2(x, y, y);
  }
};

// min or max of sums or products of 16-bit floats, rounded once as the general step rounds them.
template <class A>
struct FloatsPaired : Paired<A> {
  using Word = u32;
  static constexpr bool SHORT = false;
  using T = typename A::Storage;
  SR_FN static Word start() {
    T far = A::encode(A::start());
    return u32(far.bits) * 0x10001u;
  }
  SR_FN static void one(Word& acc, Word a, Word b) { acc = join(acc, A::mul_x2(a, b)); }
  SR_FN static void take(Word& acc, const Word* a, const Word* b) { one(acc, a[0], b[0]); }
  SR_FN static Word join(Word x, Word y) {
    return A::LEAST ? min_x2<T>(x, y) : max_x2<T>(x, y);
  }
};

// The same where every sum or product is >= 0.
template <class A>
struct NonnegativePaired : FloatsPaired<A> {
  using Word = u32;
  using Base = FloatsPaired<A>;
  static constexpr int DEPTH = 2;

  SR_FN static Word start() { return A::LEAST ? Base::start() : 0u; }
  SR_FN static void one(Word& acc, Word a, Word b) { acc = join(acc, A::mul_x2(a, b)); }
  SR_FN static void take(Word& acc, const Word* a, const Word* b) {
    Word y = A::mul_x2(a[0], b[0]), z = A::mul_x2(a[1], b[1]);
    acc = A::LEAST ? min3_x2(acc, y, z) : max3_x2(acc, y, z);
  }
  SR_FN static Word join(Word x, Word y) {
    return A::LEAST ? min3_x2(x, y, y) : max3_x2(x, y, y);
  }
};

// Truth values: 32 columns to a word. B comes packed, A one byte an element.
template <class A>
struct Bits {
  using Algebra = A;
  using Word = u32;
  using Left = u8;
  using Right = u32;
  static constexpr int COLUMNS = 32, ELEMENTS = 1, DEPTH = 1;
  static constexpr bool PLAIN = false, MIXED = false, SHORT = true;

  SR_FN static Word start() { return A::start(); }
  SR_FN static Word left(Left x) { return x ? ~0u : 0u; }
  SR_FN static Word right(const Right* x) { return x[0]; }
  SR_FN static void one(Word& acc, Word a, Word b) { acc = A::add(acc, A::mul(a, b)); }
  SR_FN static void take(Word& acc, const Word* a, const Word* b) { one(acc, a[0], b[0]); }
  SR_FN static Word join(Word x, Word y) { return A::add(x, y); }
  SR_FN static u32 out(Word x, int column) { return x >> column & 1u ? ~0u : 0u; }
};

}  // namespace sr

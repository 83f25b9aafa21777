// Step policies: how an accumulator takes up one step of k, or two.
//
// A step policy says what a register word is and which instructions combine words. `General` is
// right for every algebra; each of the others is faster for some of them, and equal to it bit for
// bit on the operands for which it is chosen (gpu/source.py: steps). The loader, the multiplier and
// the epilogue know nothing else of the arithmetic.
//
// The members of a step policy S, which is a template over an Algebra (gpu/source.py: algebra):
//
//   types
//     Algebra      types, ⊕, ⊗ and conversions of the semiring in one dtype
//     Word         4 or 8 bytes: what shared memory, fragments and accumulators hold
//     Left, Right  an element of A, of B, as it is stored in global memory
//   shapes, in compile-time constants
//     COLUMNS      adjacent columns of C in a Word: 1, 2 or 32
//     ELEMENTS     adjacent elements of B (along n) from which `right` makes a Word: 1 or 2
//     DEPTH        steps of k that `take` consumes; fragments are [TM][DEPTH] and [TN][DEPTH] words
//   flags
//     PLAIN        a Left is a Word bit for bit: tiles are copied to shared memory asynchronously,
//                  without passing through registers
//     RIGHT_PLAIN  so are ELEMENTS adjacent Rights
//     MIXED        accumulators [i][j] with i + j odd use `take_mixed`, so that two pipes share the
//                  work
//     TWO          two neighbouring columns are taken at once, by `take_two`
//     DOWN         accumulators are taken column by column, else row by row: which is faster was
//                  measured
//     SHORT        `take` is one instruction an accumulator, or two: the loop body has up to 8
//                  k steps, else 4, so that it fits the instruction cache
//   functions
//     Word start()                      identity of ⊕, in every column
//     Word left(Left x)                 an element of A, the same in every column
//     Word right(const Right* x)        x[ELEMENTS] of B, one column after the other
//     void one(Word& acc, Word a, Word b)
//                                       acc ⊕= a ⊗ b, one step of k (for the remainder)
//     void take(Word& acc, const Word* a, const Word* b)
//                                       the same for DEPTH steps of k, a[DEPTH] and b[DEPTH]
//     void take_mixed(Word& acc, const Word* a, const Word* b, i32 unit)
//                                       the same by other instructions; only if MIXED. `unit` is 1,
//                                       which the compiler does not know
//     void take_two(Word& x, Word& y, const Word* a, const Word* b, const Word* c)
//                                       `take` of x, a and b, and of y, a and c; only if TWO
//     Word join(Word x, Word y)         x ⊕ y of partial results, where k is split
//     Algebra::Compute out(Word x, int column)
//                                       the value in a column, 0 <= column < COLUMNS
//
// The policies of tensor cores (matrix.cuh, tensor.cuh) have a multiplier of their own, so no `one`
// and `take`; that of tensor.cuh loads no words either, so no `left` and `right`.
#pragma once
#include "base.cuh"

namespace sr {

// --- compile-time checks, which name what a policy lacks ---------------------------------------

template <class T>
__device__ T made();  // a value of any type, for decltype only

#define SR_MEMBER(NAME, CALL)               \
  template <class S, class = void>          \
  struct NAME { enum { found = false }; };  \
  template <class S>                        \
  struct NAME<S, decltype(void(CALL))> { enum { found = true }; }
SR_MEMBER(Has_start, typename S::Word(S::start()));
SR_MEMBER(Has_left, typename S::Word(S::left(made<typename S::Left>())));
SR_MEMBER(Has_right, typename S::Word(S::right(made<const typename S::Right*>())));
SR_MEMBER(Has_join, typename S::Word(S::join(S::start(), S::start())));
SR_MEMBER(Has_out, typename S::Algebra::Compute(S::out(S::start(), 0)));
SR_MEMBER(Has_one, S::one(made<typename S::Word&>(), S::start(), S::start()));
SR_MEMBER(Has_take, S::take(made<typename S::Word&>(), made<const typename S::Word*>(),
                            made<const typename S::Word*>()));
#undef SR_MEMBER

// What loader and epilogue need.
template <class S>
struct CheckWords {
  enum { DONE = true };
  static_assert(sizeof(typename S::Word) == 4 || sizeof(typename S::Word) == 8,
                "a step policy's Word has 4 or 8 bytes");
  static_assert(S::COLUMNS == 1 || S::COLUMNS == 2 || S::COLUMNS == 32,
                "a step policy's COLUMNS are 1, 2 or 32");
  static_assert(S::ELEMENTS == 1 || S::ELEMENTS == 2, "a step policy's ELEMENTS are 1 or 2");
  static_assert(!S::PLAIN || sizeof(typename S::Left) == sizeof(typename S::Word),
                "elements of A of a PLAIN step policy are words");
  static_assert(!S::RIGHT_PLAIN ||
                    sizeof(typename S::Right) * S::ELEMENTS == sizeof(typename S::Word),
                "a RIGHT_PLAIN step policy makes a Word of elements of B as they are");
  static_assert(Has_start<S>::found, "a step policy has Word start()");
  static_assert(Has_left<S>::found, "a step policy has Word left(Left)");
  static_assert(Has_right<S>::found, "a step policy has Word right(const Right*)");
  static_assert(Has_join<S>::found, "a step policy has Word join(Word, Word)");
  static_assert(Has_out<S>::found, "a step policy has Algebra::Compute out(Word, int column)");
};
// What the multiplier needs besides.
template <class S>
struct CheckArithmetic {
  enum { DONE = true };
  static_assert(Has_one<S>::found, "a step policy has void one(Word& acc, Word a, Word b)");
  static_assert(Has_take<S>::found, "a step policy has void take(Word&, const Word*, const Word*)");
};

// --- one column to a word ----------------------------------------------------------------------

// acc = fold(acc, a, b), the algebra's own expression: a multiply-add where it is one.
template <class A>
struct General {
  using Algebra = A;
  using Word = typename A::Compute;
  using Left = typename A::Storage;
  using Right = typename A::Storage;
  static constexpr int COLUMNS = 1, ELEMENTS = 1, DEPTH = 1;
  static constexpr bool PLAIN = A::PLAIN && sizeof(Word) == 4, RIGHT_PLAIN = PLAIN;
  static constexpr bool MIXED = false, TWO = false, SHORT = A::FUSED;
  static constexpr bool DOWN = A::SELECTS && A::NAN && sizeof(Word) == 4;

  SR_FN static Word start() { return A::start(); }
  SR_FN static Word left(Left x) { return A::decode(x); }
  SR_FN static Word right(const Right* x) { return A::decode(x[0]); }
  SR_FN static void one(Word& acc, Word a, Word b) { acc = A::fold(acc, a, b); }
  SR_FN static void take(Word& acc, const Word* a, const Word* b) { one(acc, a[0], b[0]); }
  SR_FN static Word join(Word x, Word y) { return A::add(x, y); }
  SR_FN static typename A::Compute out(Word x, int) { return x; }
};

// The same for two steps of k, for a ⊕ of which two in a row are one instruction: a minimum of three
// floats (FMNMX3).
template <class A>
struct Twice : General<A> {
  using Word = typename A::Compute;
  static constexpr int DEPTH = 2;

  SR_FN static void take(Word& acc, const Word* a, const Word* b) {
    acc = A::add(A::add(acc, A::mul(a[0], b[0])), A::mul(a[1], b[1]));
  }
};

// ⊗ with a weight w: of each two steps of k, the second has no a, and its b is the weight of the first.
// The remainder has none of them by itself, so `one` is not called.
template <class A>
struct Weighted : General<A> {
  using Word = typename A::Compute;
  static constexpr int DEPTH = 2;

  SR_FN static void take(Word& acc, const Word* a, const Word* b) {
    acc = A::fold(acc, a[0], b[0], b[1]);
  }
};

// Steps of k that the remainder takes at once.
template <class S>
struct Rest { enum { STEPS = 1 }; };
template <class A>
struct Rest<Weighted<A>> { enum { STEPS = 2 }; };

// Two columns at once, for packed instructions on two floats (FFMA2, FADD2): the sum of products,
// or the minimum or maximum of sums or products, of which three are joined by one instruction.
template <class A>
struct Packed : Twice<A> {
  using Word = float;
  static constexpr int DEPTH = A::FUSED ? 1 : 2;
  static constexpr bool TWO = true, DOWN = false;

  SR_FN static void take_two(Word& x, Word& y, const Word* a, const Word* b, const Word* c) {
    if constexpr (A::FUSED) {
      const Two sum = fma_x2(a[0], Two{b[0], c[0]}, Two{x, y});
      x = sum.x, y = sum.y;
    } else {
      const Two one = A::mul_x2(a[0], Two{b[0], c[0]}), two = A::mul_x2(a[1], Two{b[1], c[1]});
      x = A::add(A::add(x, one.x), two.x);
      y = A::add(A::add(y, one.y), two.y);
    }
  }
};

// min or max of float sums or products that are all >= 0. Bits of such floats order as integers do,
// so one three-input integer instruction takes two steps of k: 3 instructions instead of 4.
template <class A>
struct Nonnegative : General<A> {
  using Word = float;
  static constexpr int DEPTH = 2;
  static constexpr bool DOWN = false;

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

// ⊕ and ⊗ both min or max, on 32-bit integers or on integer keys that order as floats do (codec
// "key"): three-input instructions again.
template <class A>
struct Ordered : General<A> {
  using Word = i32;
  static constexpr int DEPTH = 2;
  static constexpr bool DOWN = false;

  SR_FN static void take(Word& acc, const Word* a, const Word* b) {
    i32 y = A::mul(a[0], b[0]), z = A::mul(a[1], b[1]);
    acc = A::LEAST ? min3(acc, y, z) : max3(acc, y, z);
  }
};

// min or max of 32-bit sums. Half of the accumulators use add-and-minimum instructions (VIADDMNMX),
// the other half multiply-adds by 1 and three-input minima (IMAD, VIMNMX3): the two run on
// different pipes, side by side.
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

// --- several columns to a word -----------------------------------------------------------------

// Two columns to a word: 16-bit integers or floats. An element of A is doubled, two elements of B
// make a word. What is common to the three that follow.
template <class A>
struct Paired {
  using Algebra = A;
  using Word = u32;
  using Left = typename A::Storage;
  using Right = typename A::Storage;
  static constexpr int COLUMNS = 2, ELEMENTS = 2, DEPTH = 1;
  static constexpr bool PLAIN = false, RIGHT_PLAIN = A::RAW, MIXED = false, TWO = false;
  static constexpr bool DOWN = false, SHORT = true;
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

// min or max of 16-bit integer sums, by add-and-minimum of both halves (VIADDMNMX.S16x2).
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

// min or max of sums or products of 16-bit floats, which are rounded once to 16 bits, as the
// general step rounds its result: rounding is monotonic, so it commutes with min and max.
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

// The same for two steps of k: the assembler joins two minima to one of three (VHMNMX).
template <class A>
struct FloatsJoined : FloatsPaired<A> {
  using Word = u32;
  using Base = FloatsPaired<A>;
  static constexpr int DEPTH = 2;
  static constexpr bool DOWN = true;
  SR_FN static void take(Word& acc, const Word* a, const Word* b) {
    const Word y = A::mul_x2(a[0], b[0]), z = A::mul_x2(a[1], b[1]);
    acc = Base::join(Base::join(acc, y), z);
  }
};

// Truth values, 32 columns to a word: B comes packed by pack.cuh (column j is bit j ^ 7), A one byte
// an element, which is spread over the word's bits.
template <class A>
struct Bits {
  using Algebra = A;
  using Word = u32;
  using Left = u8;
  using Right = u32;
  static constexpr int COLUMNS = 32, ELEMENTS = 1, DEPTH = 1;
  static constexpr bool PLAIN = false, RIGHT_PLAIN = true, MIXED = false, TWO = false;
  static constexpr bool DOWN = false, SHORT = true;

  SR_FN static Word start() { return A::start(); }
  SR_FN static Word left(Left x) { return x ? ~0u : 0u; }
  SR_FN static Word right(const Right* x) { return x[0]; }
  SR_FN static void one(Word& acc, Word a, Word b) { acc = A::add(acc, A::mul(a, b)); }
  SR_FN static void take(Word& acc, const Word* a, const Word* b) { one(acc, a[0], b[0]); }
  SR_FN static Word join(Word x, Word y) { return A::add(x, y); }
  SR_FN static u32 out(Word x, int column) { return x >> (column ^ 7) & 1u ? ~0u : 0u; }
};

}  // namespace sr

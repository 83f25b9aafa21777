// kernels/instructions.cuh for the host: the same functions in plain C++.
#pragma once
#include "types.cuh"

namespace sr {

// --- conversions and approximations ------------------------------------------------------------

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

SR_FN float exp2_approx(float x) { return exp2f(x); }
SR_FN int bit_length(u32 x) { return x ? 32 - __builtin_clz(x) : 0; }

// --- a warp together ---------------------------------------------------------------------------

template <class Kind>
SR_FN void mma(float (&d)[4], const u32 (&top)[2], const u32 (&bottom)[2], const u32 (&b)[2]) {
  static u32 all[host::THREADS][3][2];  // [thread][top, bottom, b][half of the steps of k]
  const unsigned own = host::current, first = own / 32 * 32, high = own % 32 / 4, low = own % 4;
  for (int half = 0; half < 2; ++half) {
    all[own][0][half] = top[half];
    all[own][1][half] = bottom[half];
    all[own][2][half] = b[half];
  }
  __syncwarp();  // between writing the operands and reading them
  constexpr int HALF = Kind::K / 2, EACH = HALF / 4;  // k in a half, and of a lane in it
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
  __syncwarp();  // between reading the operands and writing the next
}

SR_FN void mma(double (&d)[4], double top, double bottom, double b) {
  static double all[host::THREADS][3];  // [thread][top, bottom, b]
  const unsigned own = host::current, first = own / 32 * 32, high = own % 32 / 4, low = own % 4;
  all[own][0] = top;
  all[own][1] = bottom;
  all[own][2] = b;
  __syncwarp();  // between writing the operands and reading them
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned k = 0; k < 4; ++k)
      d[i] = fma(all[first + high * 4 + k][i / 2], all[first + (low * 2 + i % 2) * 4 + k][2], d[i]);
  __syncwarp();  // between reading the operands and writing the next
}

SR_FN void mma(double (&d)[4], const double (&top)[2], const double (&bottom)[2],
               const double (&b)[2]) {
  for (int half = 0; half < 2; ++half) mma(d, top[half], bottom[half], b[half]);
}

template <class Word>
SR_FN Word shuffle_xor(Word x, int mask) {
  static Word lanes[host::THREADS];
  lanes[host::current] = x;
  __syncwarp();  // between writing the words and reading them
  const Word found = lanes[host::current ^ unsigned(mask)];
  __syncwarp();  // between reading the words and writing the next
  return found;
}

template <class Word>
SR_FN Word shuffle(Word x, int lane) {
  return shuffle_xor(x, lane ^ int(host::current % 32));
}

SR_FN u32 ballot(bool x) {
  static bool lanes[host::THREADS];
  lanes[host::current] = x;
  __syncwarp();  // between writing the flags and reading them
  u32 found = 0;
  for (unsigned i = 0; i < 32; ++i) found |= u32(lanes[host::current / 32 * 32 + i]) << i;
  __syncwarp();  // between reading the flags and writing the next
  return found;
}

SR_FN i32 max_of_warp(i32 x) {
  for (int mask = 16; mask; mask /= 2) {
    const i32 other = shuffle_xor(x, mask);
    x = other > x ? other : x;
  }
  return x;
}

SR_FN int popcount(u32 x) { return __builtin_popcount(x); }

// --- a cluster of blocks together --------------------------------------------------------------

SR_FN u32 block_of_cluster() { return blockIdx.x % host::cluster; }
SR_FN void cluster_sync() { host::leave(host::AT_CLUSTER); }
template <class Word, int N>
SR_FN Pack<Word, N> load_remote(const Pack<Word, N>* own, int block) {
  const auto* place = reinterpret_cast<const u8*>(own) - host::shared + host::all_shared;
  return *reinterpret_cast<const Pack<Word, N>*>(place + size_t(block) * host::room);
}

// --- memory ------------------------------------------------------------------------------------

template <int BYTES>
SR_FN void copy_async(void* shared, const void* global, bool active = true) {
  for (int i = 0; i < BYTES / 4; ++i)
    static_cast<u32*>(shared)[i] = active ? static_cast<const u32*>(global)[i] : 0;
}
SR_FN void copy_commit() {}
template <int PENDING>
SR_FN void copy_wait() {}

SR_FN Pack<u32, 4> load_streaming(const void* from) {
  return *static_cast<const Pack<u32, 4>*>(from);
}
SR_FN void compiler_fence() {}

template <class Word, class Bits>
SR_FN Word atomic_or(Word* word, Bits bits) {  // one thread runs at a time
  const Word old = *word;
  *word |= bits;
  return old;
}
SR_FN void atomic_max(u32* word, u32 x) { if (*word < x) *word = x; }
SR_FN void atomic_add(u32* word, u32 x) {
  *word += x;
  host::progress();
}
SR_FN void atomic_add(u64* word, u64 x) { *word += x; }
SR_FN void atomic_add(float* word, float x) { *word += x; }
SR_FN void atomic_add(double* word, double x) { *word += x; }
template <class Word>
SR_FN Word load_current(const Word* word) { return *word; }
template <class Word>
SR_FN void store_current(Word* word, Word x) {
  *word = x;
  host::progress();
}
SR_FN u64 wait_for_tag(const u64* word, u64 seen, u32 tag) {
  while (u32(seen >> 32) != tag && u32((seen = *word) >> 32) != tag) host::yield();
  return seen;
}
template <class Word>
SR_FN Word compare_exchange(Word* word, Word seen, Word x) {
  const Word found = *word;
  if (found == seen) *word = x;
  return found;
}
SR_FN u32 fetch_add(u32* word, u32 x) {
  const u32 old = *word;
  *word += x;
  host::progress();
  return old;
}
SR_FN void memory_fence() { host::fence(); }
SR_FN void store_current(u32* word, u32 x) {
  *word = x;
  host::stored(word);
}
SR_FN void wait_for(const u32* word, u32 least) {
  while (*word < least) host::yield();
  host::seen(word);
}

template <class T>
T* shared_memory() {
  return reinterpret_cast<T*>(host::shared);
}

}  // namespace sr

// PTX and intrinsics: all that is neither portable C++ nor particular to Hopper (hopper.cuh has
// that).
//
// The tests compile the kernels with g++ and put a header of the same name before this one:
// tests/host/instructions.cuh defines the same functions in plain C++. So includes of this file
// have angle brackets, and no other file needs to know which compiler reads it.
#pragma once
#include "types.cuh"

namespace sr {

// --- conversions and approximations ------------------------------------------------------------

SR_FN float to_float(half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
SR_FN half to_half(float x) {  // round to nearest even
  half y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// 2^x within 2 units in the last place; denormal results are flushed to zero.
SR_FN float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Bits without leading zeros: 0 for 0, 1 for 1, 2 for 2 and 3.
SR_FN int bit_length(u32 x) { return 32 - __clz(int(x)); }

// --- a warp together ---------------------------------------------------------------------------

// d += A B by the 32 lanes of a warp, of 16 x K times K x 8 elements; matrix.cuh says which of them
// a lane holds. `top` and `bottom` are the words of A's rows l / 4 and l / 4 + 8 for lane l.
template <class Kind>
SR_FN void mma(float (&d)[4], const u32 (&top)[2], const u32 (&bottom)[2], const u32 (&b)[2]) {
#define SR_MMA(SHAPE, TYPES)                                                                  \
  asm("mma.sync.aligned." SHAPE ".row.col.f32." TYPES ".f32 {%0, %1, %2, %3}, "                \
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                         \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                        \
      : "r"(top[0]), "r"(bottom[0]), "r"(top[1]), "r"(bottom[1]), "r"(b[0]), "r"(b[1]))
#if __CUDA_ARCH__ >= 800
  if constexpr (Kind::K == 8) SR_MMA("m16n8k8", "tf32.tf32");
  else if constexpr (Is<typename Kind::Element>::half) SR_MMA("m16n8k16", "f16.f16");
  else SR_MMA("m16n8k16", "bf16.bf16");
#endif
#undef SR_MMA
}

// The same for doubles, whose word is one step of k: 16 x 4 times 4 x 8 elements.
SR_FN void mma(double (&d)[4], double top, double bottom, double b) {
#define SR_MMA(SHAPE, SUMS, A)                                                  \
  "mma.sync.aligned." SHAPE ".row.col.f64.f64.f64.f64 {" SUMS "}, {" A "}, {%6}, {" SUMS "};\n"
#define SR_OPERANDS \
  : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3]) : "d"(top), "d"(bottom), "d"(b)
#if __CUDA_ARCH__ >= 900
  asm(SR_MMA("m16n8k4", "%0, %1, %2, %3", "%4, %5") SR_OPERANDS);
#elif __CUDA_ARCH__ >= 800
  asm(SR_MMA("m8n8k4", "%0, %1", "%4") SR_MMA("m8n8k4", "%2, %3", "%5") SR_OPERANDS);
#endif
#undef SR_OPERANDS
#undef SR_MMA
}

// The same for eight steps of k, of Hopper's: a lane has two, four apart in the instruction's order.
SR_FN void mma(double (&d)[4], const double (&top)[2], const double (&bottom)[2],
               const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(top[0]), "d"(bottom[0]), "d"(top[1]), "d"(bottom[1]), "d"(b[0]), "d"(b[1]));
#endif
}

// The word of lane (own lane ^ mask). All 32 lanes of the warp take part.
template <class Word>
SR_FN Word shuffle_xor(Word x, int mask) { return __shfl_xor_sync(~0u, x, mask); }

// The word of a lane. All 32 lanes of the warp take part.
template <class Word>
SR_FN Word shuffle(Word x, int lane) { return __shfl_sync(~0u, x, lane); }

// A bit for each lane. All 32 lanes of the warp take part.
SR_FN u32 ballot(bool x) { return __ballot_sync(~0u, x); }

// The largest of the lanes' words. All 32 lanes of the warp take part.
SR_FN i32 max_of_warp(i32 x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, x);
#else
  for (int mask = 16; mask; mask /= 2) {
    const i32 other = shuffle_xor(x, mask);
    x = other > x ? other : x;
  }
  return x;
#endif
}

SR_FN int popcount(u32 x) { return __popc(x); }

// --- a cluster of blocks together: adjacent blocks that run at the same time, from sm_90 on -----

SR_FN u32 block_of_cluster() {  // the number of this one
  u32 block = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
#endif
  return block;
}
// A barrier of all threads of the cluster: what they wrote to shared memory is seen after it.
SR_FN void cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}
// N words at the place in the shared memory of another block where `own` is in this block's.
template <class Word, int N>
SR_FN Pack<Word, N> load_remote(const Pack<Word, N>* own, int block) {
  static_assert(sizeof(Word) * N == 16 || sizeof(Word) * N == 8 || sizeof(Word) * N == 4);
  constexpr int WORDS = sizeof(Word) * N / 4;
  Pack<u32, WORDS> x{};
#if __CUDA_ARCH__ >= 900
  u32 at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(at) : "r"(u32(__cvta_generic_to_shared(own))), "r"(block));
  if constexpr (WORDS == 4)
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x[0]), "=r"(x.x[1]), "=r"(x.x[2]), "=r"(x.x[3]) : "r"(at) : "memory");
  else if constexpr (WORDS == 2)
    asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];"
                 : "=r"(x.x[0]), "=r"(x.x[1]) : "r"(at) : "memory");
  else
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x.x[0]) : "r"(at) : "memory");
#endif
  return bits_as<Pack<Word, N>>(x);
}

// --- memory ------------------------------------------------------------------------------------

// Asynchronous copies of 4, 8 or 16 bytes from global to shared memory. They form groups in the order
// of copy_commit; copy_wait<N> returns when all but the last N groups have arrived. Unless `active`,
// zeros are stored and nothing is read.
template <int BYTES>
SR_FN void copy_async(void* shared, const void* global, bool active = true) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies one, two or four words");
#if __CUDA_ARCH__ >= 800
  u32 to = u32(__cvta_generic_to_shared(shared));
  const int bytes = active ? BYTES : 0;
  if constexpr (BYTES == 16)  // past L1: the block reads each word once
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(to), "l"(global), "r"(bytes));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 ::"r"(to), "l"(global), "n"(BYTES), "r"(bytes));
#else
  for (int i = 0; i < BYTES / 4; ++i)
    static_cast<u32*>(shared)[i] = active ? static_cast<const u32*>(global)[i] : 0;
#endif
}
SR_FN void copy_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}
template <int PENDING>
SR_FN void copy_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
#endif
}

// 16 bytes that are read once and not written by this kernel: they bypass L1, so that they evict
// nothing that is read again.
SR_FN Pack<u32, 4> load_streaming(const void* from) {
  Pack<u32, 4> x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x[0]), "=r"(x.x[1]), "=r"(x.x[2]), "=r"(x.x[3]) : "l"(from));
  return x;
}

// The compiler may not sink the loads above below this line, to where their values are used: all of
// them are in flight at once.
SR_FN void compiler_fence() { asm volatile("" ::: "memory"); }

// *word |= bits, of which the old word is returned, the greater of *word and x, and *word += x, where
// other threads write the same word.
SR_FN u32 atomic_or(u32* word, u32 bits) { return atomicOr(word, bits); }
SR_FN u64 atomic_or(u64* word, u64 bits) { return atomicOr(word, bits); }
SR_FN void atomic_max(u32* word, u32 x) { atomicMax(word, x); }
SR_FN void atomic_add(u32* word, u32 x) { atomicAdd(word, x); }
SR_FN void atomic_add(u64* word, u64 x) { atomicAdd(word, x); }
SR_FN void atomic_add(float* word, float x) { atomicAdd(word, x); }
SR_FN void atomic_add(double* word, double x) { atomicAdd(word, x); }

// A word that other threads may write at the same time; and `*word = x` if it is still `seen`: what
// it was.
SR_FN u32 load_current(const u32* word) {
  u32 x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(word) : "memory");
  return x;
}
SR_FN u64 load_current(const u64* word) {
  u64 x;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(word) : "memory");
  return x;
}
SR_FN void store_current(u32* word, u32 x) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(x) : "memory");
}
SR_FN void store_current(u64* word, u64 x) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(x) : "memory");
}
// A word whose upper half is a tag, and that was `seen`: when another thread has stored it with this
// tag. What comes with its tag needs no barrier.
SR_FN u64 wait_for_tag(const u64* word, u64 seen, u32 tag) {
  while (u32(seen >> 32) != tag) seen = load_current(word);
  return seen;
}
template <class Word>
SR_FN Word compare_exchange(Word* word, Word seen, Word x) { return atomicCAS(word, seen, x); }

// *word += x, of which the old word is returned.
SR_FN u32 fetch_add(u32* word, u32 x) { return atomicAdd(word, x); }

// One block tells others that its stores are done: its threads store, a barrier, then one thread:
// memory_fence, store_current. Another block's thread waits for the word; after a barrier its
// threads read what was stored.
SR_FN void memory_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Until *word >= least.
SR_FN void wait_for(const u32* word, u32 least) {
  for (;;) {
    u32 x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(word) : "memory");
    if (x >= least) return;
    __nanosleep(20);
  }
}

// The block's dynamic shared memory; what needs more than 16 bytes of alignment aligns it itself.
template <class T>
SR_FN T* shared_memory() {
  extern __shared__ __align__(16) unsigned char sr_shared[];
  return reinterpret_cast<T*>(sr_shared);
}

}  // namespace sr

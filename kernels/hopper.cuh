// Hopper's own instructions (sm_90a): transaction barriers, the copy engine, warpgroup products.
//
// As with instructions.cuh, the tests put tests/host/hopper.cuh before this file, with the same
// functions in plain C++. Names are those of CUTLASS where it has the same thing.
#pragma once
#include "boxes.cuh"

namespace sr {

// --- barriers ----------------------------------------------------------------------------------

// A transaction barrier in shared memory (mbarrier). A phase ends when all counted threads have
// arrived and all announced bytes have landed; phases have parities 0, 1, 0, ...
struct alignas(16) Barrier {
  u64 word;

  SR_FN void init(u32 arrivals);             // arrivals that end a phase
  SR_FN void arrive();
  SR_FN void arrive_at(u32 block);           // at the same barrier of a block of the cluster
  SR_FN void arrive_and_expect(u32 bytes);   // arrive, and announce bytes of this phase
  SR_FN void wait(u32 parity);               // until the phase of this parity has ended
};
static_assert(sizeof(Barrier) == 16, "as TensorProduct::BYTES counts them");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // elsewhere only the conversions of tensor.cuh are compiled

SR_FN u32 shared_address(const void* x) { return u32(__cvta_generic_to_shared(x)); }
// An address in shared memory that is kept: the compiler would compute it anew at each use.
SR_FN u8* kept(u8* x) {
  u32 address = shared_address(x);
  asm volatile("" : "+r"(address));
  return static_cast<u8*>(__cvta_shared_to_generic(address));
}

// A number that is computed here, not where it is used.
template <class T>
SR_FN void pin(T& x) { asm volatile("" : "+r"(x)); }

SR_FN void Barrier::init(u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               ::"r"(shared_address(this)), "r"(arrivals));
}
SR_FN void Barrier::arrive() {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
}
SR_FN void Barrier::arrive_at(u32 block) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}"
      ::"r"(shared_address(this)), "r"(block) : "memory");
}
SR_FN void Barrier::arrive_and_expect(u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(shared_address(this)), "r"(bytes) : "memory");
}
SR_FN void Barrier::wait(u32 parity) {
  asm volatile(
      "{\n.reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again;\n}"
      ::"r"(shared_address(this)), "r"(parity) : "memory");
}
// Makes initialised barriers visible to the copy engine, which reads through another proxy.
SR_FN void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Hand registers from the producer warpgroup, which only copies, to the multiplying ones. All
// threads of a warpgroup call them; REGISTERS a thread is a multiple of 8.
template <int REGISTERS>
SR_FN void warpgroup_reg_dealloc() {
  static_assert(REGISTERS % 8 == 0 && REGISTERS >= 24 && REGISTERS <= 256, "of setmaxnreg");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
SR_FN void warpgroup_reg_alloc() {
  static_assert(REGISTERS % 8 == 0 && REGISTERS >= 24 && REGISTERS <= 256, "of setmaxnreg");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
// A barrier of the 128 threads of a warpgroup, of which there may be 15.
SR_FN void warpgroup_sync(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}

// A barrier of the THREADS threads of a block, at which some only arrive.
template <int THREADS>
SR_FN void block_sync() {
  asm volatile("bar.sync 0, %0;" ::"n"(THREADS) : "memory");
}
template <int THREADS>
SR_FN void block_arrive() {
  asm volatile("bar.arrive 0, %0;" ::"n"(THREADS) : "memory");
}

// Where a launch may begin before the one before it has ended (Kernel.launch in
// semiring_mm/gpu/device.py): wait until the results of that are in memory; let the next one begin.
SR_FN void wait_for_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
SR_FN void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// --- copies ------------------------------------------------------------------------------------

// Start to load the box at (x, y, z) of an array, into this block or into all BLOCKS of its
// cluster: its bytes count at the barrier of each. What lies outside of the array is loaded as 0.
template <int BLOCKS>
SR_FN void load_box(void* to, const TensorMap& from, Barrier& at, int x, int y, int z) {
  if constexpr (BLOCKS == 1)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5}], [%2];"
        ::"r"(shared_address(to)), "l"(&from), "r"(shared_address(&at)), "r"(x), "r"(y), "r"(z)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;"
        ::"r"(shared_address(to)), "l"(&from), "r"(shared_address(&at)), "r"(x), "r"(y), "r"(z),
          "h"(u16((1 << BLOCKS) - 1))
        : "memory");
}
SR_FN void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Start to store a box; what lies outside of the array is dropped. Stores form groups: store_wait<N>
// returns when the boxes of all groups of this thread but the last N may be overwritten. What other
// threads wrote to them comes before: each calls store_fence, then all meet at a barrier.
SR_FN void store_box(const TensorMap& to, const void* from, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
      ::"l"(&to), "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
SR_FN void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING>
SR_FN void store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
SR_FN void store_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Store four matrices of 8 x 8 16-bit elements: thread t of a warp has the elements 2 (t % 4) (+ 1)
// of row t / 4 of each, and the address of row t % 8 of matrix t / 8.
// ACROSS: these are columns.
template <bool ACROSS = false>
SR_FN void store_matrices(void* row, const u32 (&x)[4]) {
  if constexpr (ACROSS)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(shared_address(row)), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(shared_address(row)), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// Two floats as 16-bit ones in a word, rounded to nearest even.
template <class T>
SR_FN u32 pack_x2(float low, float high) {
  u32 x;
  if constexpr (Is<T>::half) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

// --- products ----------------------------------------------------------------------------------

// Boxes of an operand. The matrix descriptor has their address, leading and stride byte offset in
// units of 16 bytes, and the 128-byte swizzle in bits 62 and 63; here is its first half.
struct Matrix {
  u32 word;

  template <bool K_MAJOR>
  SR_FN static Matrix of(const u8* boxes) {
    constexpr u32 NEXT = BOX >> 4;
    return {(shared_address(boxes) >> 4 & 0x3fff) | (K_MAJOR ? 1 : NEXT) << 16};
  }
  SR_FN Matrix operator+(int bytes) const { return {word + u32(bytes >> 4)}; }
  SR_FN u64 descriptor() const {
    constexpr u32 EIGHT_LINES = 8 * LINE >> 4, SWIZZLE_128 = 1;
    return u64(SWIZZLE_128 << 30 | EIGHT_LINES) << 32 | word;
  }
};

// The compiler counts operands, so they are written out.
#define SR_8(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3]), C(d[i + 4]), C(d[i + 5]), \
    C(d[i + 6]), C(d[i + 7])
#define SR_32(C, i) SR_8(C, i), SR_8(C, i + 8), SR_8(C, i + 16), SR_8(C, i + 24)
#define SR_ALL_16(C) SR_8(C, 0), SR_8(C, 8)
#define SR_ALL_32(C) SR_32(C, 0)
#define SR_ALL_48(C) SR_32(C, 0), SR_8(C, 32), SR_8(C, 40)
#define SR_ALL_64(C) SR_32(C, 0), SR_32(C, 32)
#define SR_ALL_96(C) SR_ALL_64(C), SR_32(C, 64)
#define SR_ALL_128(C) SR_ALL_96(C), SR_32(C, 96)
#define SR_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SR_NAMES_32 \
  SR_NAMES_16 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SR_NAMES_48 \
  SR_NAMES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SR_NAMES_64 \
  SR_NAMES_48 ", " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SR_NAMES_96 \
  SR_NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SR_NAMES_128 \
  SR_NAMES_96 ", " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SR_WGMMA_OF(A, WHAT, COUNT, AB, PRED, END, C, ...)                                      \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " PRED ", 0;\n"         \
               "wgmma.mma_async.sync.aligned." WHAT " {" SR_NAMES_##COUNT "}, " AB         \
               ", accumulate" END ";\n}"                                                         \
               : SR_ALL_##COUNT(C)                                                             \
               : A, "l"(b), "r"(int(accumulate)) __VA_ARGS__)
#define SR_WGMMA(...) SR_WGMMA_OF("l"(a), __VA_ARGS__)
#define SR_FLOATS(WHAT, COUNT, AB, PRED, END, ...) \
  SR_WGMMA(WHAT, COUNT, AB, PRED, END, "+f", __VA_ARGS__)
// Transposed operands: those whose boxes are not K-major.
#define SR_MAJOR , "n"(!A_K_MAJOR), "n"(!B_K_MAJOR)
// Of 16-bit floats, of any width in use.
#define SR_16(TYPE, N, COUNT, AB, PRED, MAJORS) \
  SR_FLOATS("m64n" #N "k16.f32." TYPE "." TYPE, COUNT, AB, PRED, ", 1, 1, " MAJORS, SR_MAJOR)
#define SR_OF_16(TYPE)                                                                         \
  if constexpr (N == 256) SR_16(TYPE, 256, 128, "%128, %129", "%130", "%131, %132");           \
  else if constexpr (N == 192) SR_16(TYPE, 192, 96, "%96, %97", "%98", "%99, %100");           \
  else if constexpr (N == 128) SR_16(TYPE, 128, 64, "%64, %65", "%66", "%67, %68");            \
  else if constexpr (N == 96) SR_16(TYPE, 96, 48, "%48, %49", "%50", "%51, %52");              \
  else if constexpr (N == 32) SR_16(TYPE, 32, 16, "%16, %17", "%18", "%19, %20");              \
  else SR_16(TYPE, 64, 32, "%32, %33", "%34", "%35, %36")

// d += A B of 64 x K times K x N elements, by the 128 threads of a warpgroup; d = A B unless
// `accumulate`. Asynchronous: see warpgroup_wait. Thread t holds of rows t / 32 * 16 + t % 32 / 4
// (+ 8) the columns t % 4 * 2 (+ 1) of every eight: d is [N / 8][2 rows][2 columns].
template <class Kind, bool A_K_MAJOR, bool B_K_MAJOR, int N>
SR_FN void warpgroup_mma(typename Kind::Sum (&d)[N / 2], Matrix left, Matrix right,
                         bool accumulate) {
  const u64 a = left.descriptor(), b = right.descriptor();
  static_assert((A_K_MAJOR && B_K_MAJOR) || Kind::K == 16,
                "the instruction transposes 16-bit operands only");
  if constexpr (Kind::K == 16) {
    if constexpr (Is<typename Kind::Element>::half) SR_OF_16("f16");
    else SR_OF_16("bf16");
  } else if constexpr (Kind::K == 8) {
    if constexpr (N == 256)
      SR_FLOATS("m64n256k8.f32.tf32.tf32", 128, "%128, %129", "%130", ", 1, 1");
    else if constexpr (N == 192)
      SR_FLOATS("m64n192k8.f32.tf32.tf32", 96, "%96, %97", "%98", ", 1, 1");
    else if constexpr (N == 128)
      SR_FLOATS("m64n128k8.f32.tf32.tf32", 64, "%64, %65", "%66", ", 1, 1");
    else
      SR_FLOATS("m64n64k8.f32.tf32.tf32", 32, "%32, %33", "%34", ", 1, 1");
  } else {
    if constexpr (N == 256)
      SR_WGMMA("m64n256k256.s32.b1.b1.and.popc", 128, "%128, %129", "%130", "", "+r");
    else if constexpr (N == 128)
      SR_WGMMA("m64n128k256.s32.b1.b1.and.popc", 64, "%64, %65", "%66", "", "+r");
    else
      SR_WGMMA("m64n64k256.s32.b1.b1.and.popc", 32, "%32, %33", "%34", "", "+r");
  }
}

// The same of a left operand in registers: rows t / 32 * 16 + t % 32 / 4 (+ 8) of the steps t % 4
// and t % 4 + 4 of k, [2 of k][2 rows].
template <class Kind, int N>
SR_FN void warpgroup_mma(float (&d)[N / 2], const u32 (&a)[4], Matrix right, bool accumulate) {
  const u64 b = right.descriptor();
  static_assert(Kind::K == 8, "of tf32");
#define SR_FOUR "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
  if constexpr (N == 256)
    SR_WGMMA_OF(SR_FOUR, "m64n256k8.f32.tf32.tf32", 128, "{%128, %129, %130, %131}, %132", "%133",
                ", 1, 1", "+f");
  else if constexpr (N == 192)
    SR_WGMMA_OF(SR_FOUR, "m64n192k8.f32.tf32.tf32", 96, "{%96, %97, %98, %99}, %100", "%101",
                ", 1, 1", "+f");
  else if constexpr (N == 128)
    SR_WGMMA_OF(SR_FOUR, "m64n128k8.f32.tf32.tf32", 64, "{%64, %65, %66, %67}, %68", "%69",
                ", 1, 1", "+f");
  else
    SR_WGMMA_OF(SR_FOUR, "m64n64k8.f32.tf32.tf32", 32, "{%32, %33, %34, %35}, %36", "%37",
                ", 1, 1", "+f");
#undef SR_FOUR
}
#undef SR_OF_16
#undef SR_16
#undef SR_MAJOR
#undef SR_FLOATS
#undef SR_WGMMA
#undef SR_WGMMA_OF
#undef SR_NAMES_128
#undef SR_NAMES_96
#undef SR_NAMES_64
#undef SR_NAMES_48
#undef SR_NAMES_32
#undef SR_NAMES_16
#undef SR_ALL_128
#undef SR_ALL_96
#undef SR_ALL_64
#undef SR_ALL_48
#undef SR_ALL_32
#undef SR_ALL_16
#undef SR_32
#undef SR_8

// Products form groups: arrive, products, commit. warpgroup_wait<N> returns when all but the last N
// groups are done; until then their accumulators may not be touched, nor their operands
// overwritten.
SR_FN void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SR_FN void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
SR_FN void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#endif

}  // namespace sr

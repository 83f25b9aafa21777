// Hopper's own machinery: barriers in shared memory, tiles brought by the copy engine, products of
// tiles that lie in shared memory. Like base.cuh, once as instructions and once as plain code.
#pragma once
#include "base.cuh"

namespace sr {

#if !defined(SR_HOST) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SR_HOPPER 1  // compiled for sm_90a
#else
#define SR_HOPPER 0
#endif

constexpr int WARPGROUP = 128;  // threads that multiply together

// --- barriers ---------------------------------------------------------------------------------

// A barrier in shared memory. A phase is over when all that were counted have arrived and all bytes
// that were announced are there.
struct alignas(16) Barrier {
  u64 word;
#ifdef SR_HOST
  u64 rest;
#endif

  SR_FN void init(u32 arrivals);
  SR_FN void arrive();
  SR_FN void expect(u32 bytes);     // announces bytes, and arrives
  SR_FN void wait(u32 parity);      // until the phase of this parity is over
};

#ifndef SR_HOST
SR_FN u32 shared_address(const void* x) { return u32(__cvta_generic_to_shared(x)); }
#endif

#if SR_HOPPER
SR_FN void Barrier::init(u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               ::"r"(shared_address(this)), "r"(arrivals));
}
SR_FN void Barrier::arrive() {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
}
SR_FN void Barrier::expect(u32 bytes) {
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
// What init wrote is seen by the copy engine.
SR_FN void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Registers are handed from the threads that only copy to those that multiply.
template <int REGISTERS>
SR_FN void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
SR_FN void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
#elif defined(SR_HOST)
struct Phase {  // what the bits of a barrier are here
  u32 parity : 1, pending : 15, arrivals : 16;
  i32 bytes;
};
SR_FN Phase& phase_of(Barrier& x) { return reinterpret_cast<Phase&>(x.word); }
SR_FN void look_at(Phase& x) {
  host::moved();
  if (x.pending || x.bytes) return;
  x.parity ^= 1;
  x.pending = x.arrivals;
}
SR_FN void Barrier::init(u32 arrivals) {
  word = 0;
  phase_of(*this).pending = phase_of(*this).arrivals = arrivals;
}
SR_FN void Barrier::arrive() {
  Phase& x = phase_of(*this);
  if (x.pending == 0) host::report("thread %u arrives where nobody is waited for", threadIdx.x);
  x.pending -= 1;
  look_at(x);
}
SR_FN void Barrier::expect(u32 bytes) {
  phase_of(*this).bytes += i32(bytes);
  arrive();
}
SR_FN void Barrier::wait(u32 parity) {
  while (phase_of(*this).parity == parity) host::turn();
}
SR_FN void barriers_made() {}
template <int REGISTERS>
SR_FN void give_registers() {}
template <int REGISTERS>
SR_FN void take_registers() {}
#endif

// --- copies of boxes --------------------------------------------------------------------------

// An array of up to three dimensions, as the driver describes it to the copy engine.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// A box is LINES lines of 128 bytes that lie side by side in memory. In shared memory, where it
// begins at a multiple of 1024 bytes, the 16-byte pieces of line l change places: piece p is at
// p ^ (l % 8), so that a column of pieces lies in all banks.
constexpr int LINE = 128, LINES = 64, BOX = LINE * LINES;

SR_FN u32 swizzled(u32 address) { return address ^ (address >> 7 & 7) << 4; }

// Begin to copy the box at (x, y, z); its bytes count at the barrier. Outside of the array is 0.
#if SR_HOPPER
SR_FN void copy_box(void* to, const TensorMap& from, Barrier& at, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];"
      ::"r"(shared_address(to)), "l"(&from), "r"(shared_address(&at)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
#elif defined(SR_HOST)
struct HostMap {  // what stands in a TensorMap here; sizes in elements, strides in bytes
  const u8* base;
  i64 size[3], stride[3];
  i64 element;
};
SR_FN void copy_box(void* to, const TensorMap& from, Barrier& at, int x, int y, int z) {
  const HostMap& map = reinterpret_cast<const HostMap&>(from);
  u8* box = static_cast<u8*>(to);
  const int width = LINE / int(map.element);
  for (int line = 0; line < LINES; ++line)
    for (int e = 0; e < width; ++e) {
      u8* put = box + swizzled(u32(line * LINE + e * map.element));
      const bool inside = x + e < map.size[0] && y + line < map.size[1] && z < map.size[2];
      const u8* get = map.base + (x + e) * map.stride[0] + (y + line) * map.stride[1] +
                      z * map.stride[2];
      for (int byte = 0; byte < map.element; ++byte) put[byte] = inside ? get[byte] : 0;
    }
  phase_of(at).bytes -= BOX;
  look_at(phase_of(at));
}
#endif

// --- products of tiles ------------------------------------------------------------------------

// Boxes of an operand. LINES_ARE_ROWS: a line has 128 bytes of k of one row, and a box 64 rows; else
// a line is a step of k, and has 64 rows of 2 bytes each.
template <bool LINES_ARE_ROWS>
struct Operand {
  // Where the step `s` of k begins that a product takes.
  template <class Kind>
  SR_FN static const u8* step(const u8* boxes, int s) {
    return boxes + s * (LINES_ARE_ROWS ? 32 : Kind::K * LINE);
  }
#if SR_HOPPER
  SR_FN static u64 describe(const u8* boxes) {
    constexpr u64 EIGHT_LINES = 8 * LINE >> 4, NEXT = BOX >> 4, SWIZZLED = 1;
    return u64(shared_address(boxes) >> 4 & 0x3fff) | (LINES_ARE_ROWS ? 1 : NEXT) << 16 |
           EIGHT_LINES << 32 | SWIZZLED << 62;
  }
#elif defined(SR_HOST)
  template <class Kind>
  SR_FN static typename Kind::Element read(const u8* boxes, int row, int k) {
    constexpr int SIZE = sizeof(typename Kind::Element);
    const u64 place = reinterpret_cast<u64>(boxes) +
                      (LINES_ARE_ROWS ? row * LINE + k * SIZE
                                      : row / 64 * BOX + k * LINE + row % 64 * SIZE);
    return *reinterpret_cast<const typename Kind::Element*>(place ^ (place >> 7 & 7) << 4);
  }
#endif
};

// d += A B of 64 x K times K x N elements, by the 128 threads of a warpgroup; without `join`, d = A B.
// Thread t has of rows t / 32 * 16 + t % 32 / 4 (+ 8) the columns t % 4 * 2 (+ 1) of each eight: d is
// [N / 8][2 rows][2 columns].
#if SR_HOPPER
// The compiler counts operands, so they are written out.
#define SR_8(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3]), C(d[i + 4]), C(d[i + 5]), \
    C(d[i + 6]), C(d[i + 7])
#define SR_32(C, i) SR_8(C, i), SR_8(C, i + 8), SR_8(C, i + 16), SR_8(C, i + 24)
#define SR_64(C) SR_32(C, 0), SR_32(C, 32)
#define SR_128(C) SR_64(C), SR_32(C, 64), SR_32(C, 96)
#define SR_NAMES_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SR_NAMES_128 \
  SR_NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SR_WGMMA(WHAT, COUNT, AB, JOIN, END, C, ...)                                       \
  asm volatile("{\n.reg .pred join;\nsetp.ne.b32 join, " JOIN ", 0;\n"                     \
               "wgmma.mma_async.sync.aligned." WHAT " {" SR_NAMES_##COUNT "}, " AB         \
               ", join" END ";\n}"                                                         \
               : SR_##COUNT(C)                                                             \
               : "l"(a), "l"(b), "r"(int(join)) __VA_ARGS__)
#define SR_FLOATS(WHAT, COUNT, AB, JOIN, END, ...) \
  SR_WGMMA(WHAT, COUNT, AB, JOIN, END, "+f", __VA_ARGS__)
#define SR_TURNED , "n"(!A_ROWS), "n"(!B_ROWS)

template <class Kind, bool A_ROWS, bool B_ROWS, int N>
SR_FN void multiply(typename Kind::Sum (&d)[N / 2], const u8* a_boxes, const u8* b_boxes,
                    bool join) {
  const u64 a = Operand<A_ROWS>::describe(a_boxes), b = Operand<B_ROWS>::describe(b_boxes);
  static_assert(N == 128 || N == 256, "a product has 128 or 256 columns");
  static_assert((A_ROWS && B_ROWS) || Kind::K == 16, "only 16-bit floats may lie across k");
  if constexpr (Is<typename Kind::Element>::half) {
    if constexpr (N == 256)
      SR_FLOATS("m64n256k16.f32.f16.f16", 128, "%128, %129", "%130", ", 1, 1, %131, %132",
                SR_TURNED);
    else
      SR_FLOATS("m64n128k16.f32.f16.f16", 64, "%64, %65", "%66", ", 1, 1, %67, %68", SR_TURNED);
  } else if constexpr (Kind::K == 16) {
    if constexpr (N == 256)
      SR_FLOATS("m64n256k16.f32.bf16.bf16", 128, "%128, %129", "%130", ", 1, 1, %131, %132",
                SR_TURNED);
    else
      SR_FLOATS("m64n128k16.f32.bf16.bf16", 64, "%64, %65", "%66", ", 1, 1, %67, %68",
                SR_TURNED);
  } else if constexpr (Kind::K == 8) {
    if constexpr (N == 256)
      SR_FLOATS("m64n256k8.f32.tf32.tf32", 128, "%128, %129", "%130", ", 1, 1");
    else
      SR_FLOATS("m64n128k8.f32.tf32.tf32", 64, "%64, %65", "%66", ", 1, 1");
  } else {
    if constexpr (N == 256)
      SR_WGMMA("m64n256k32.s32.u8.u8", 128, "%128, %129", "%130", "", "+r");
    else
      SR_WGMMA("m64n128k32.s32.u8.u8", 64, "%64, %65", "%66", "", "+r");
  }
}
// Before the first of a group of products, and after its last.
SR_FN void multiply_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SR_FN void multiply_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
SR_FN void multiply_wait() {  // until at most so many groups are under way
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
#elif defined(SR_HOST)
SR_FN float tensor_value(half x) { return to_float(x); }
SR_FN float tensor_value(bfloat x) { return to_float(x); }
SR_FN float tensor_value(float x) { return bits_as<float>(bits_as<u32>(x) & 0xffffe000u); }
SR_FN i32 tensor_value(u8 x) { return x; }
template <class Kind, bool A_ROWS, bool B_ROWS, int N>
SR_FN void multiply(typename Kind::Sum (&d)[N / 2], const u8* a_boxes, const u8* b_boxes,
                    bool join) {
  const int t = int(threadIdx.x) % WARPGROUP;
  for (int i = 0; i < N / 2; ++i) {
    const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + t % 4 * 2 + i % 2;
    typename Kind::Sum sum = join ? d[i] : 0;
    for (int k = 0; k < Kind::K; ++k)
      sum += tensor_value(Operand<A_ROWS>::template read<Kind>(a_boxes, row, k)) *
             tensor_value(Operand<B_ROWS>::template read<Kind>(b_boxes, column, k));
    d[i] = sum;
  }
}
SR_FN void multiply_begin() {}
SR_FN void multiply_end() {}
template <int PENDING>
SR_FN void multiply_wait() {}
#endif

}  // namespace sr

// kernels/hopper.cuh for the host: the same functions in plain C++. Copies are done at once, and
// products when they are called; a thread that waits for a barrier lets the others run.
#pragma once
#include "boxes.cuh"

namespace sr {

struct alignas(16) Barrier {
  u64 word;  // a Phase

  SR_FN void init(u32 arrivals);
  SR_FN void arrive();
  SR_FN void arrive_and_expect(u32 bytes);
  SR_FN void wait(u32 parity);
};
struct Phase {
  u32 parity : 1, pending : 15, arrivals : 16;
  i32 bytes;  // announced less landed
};
static_assert(sizeof(Phase) == sizeof(u64), "a phase is a barrier's word");

SR_FN Phase& phase_of(Barrier& x) { return reinterpret_cast<Phase&>(x.word); }
SR_FN void end_phase_if_complete(Phase& x) {
  host::progress();
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
  end_phase_if_complete(x);
}
SR_FN void Barrier::arrive_and_expect(u32 bytes) {
  phase_of(*this).bytes += i32(bytes);
  arrive();
}
SR_FN void Barrier::wait(u32 parity) {
  while (phase_of(*this).parity == parity) host::yield();
}
SR_FN void fence_barrier_init() {}
template <int REGISTERS>
SR_FN void warpgroup_reg_dealloc() {}
template <int REGISTERS>
SR_FN void warpgroup_reg_alloc() {}

struct HostMap {  // the contents of a TensorMap here; sizes in elements, strides in bytes
  const u8* base;
  i64 size[3], stride[3];
  i64 element;
};
SR_FN void load_box(void* to, const TensorMap& from, Barrier& at, int x, int y, int z) {
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
  end_phase_if_complete(phase_of(at));
}

SR_FN float tensor_value(half x) { return to_float(x); }
SR_FN float tensor_value(bfloat x) { return to_float(x); }
SR_FN float tensor_value(float x) { return bits_as<float>(bits_as<u32>(x) & 0xffffe000u); }
template <class T>
SR_FN float tensor_term(T x, T y) { return tensor_value(x) * tensor_value(y); }
SR_FN i32 tensor_term(u8 x, u8 y) { return popcount(x & y); }

template <bool K_MAJOR, class Element>
SR_FN Element read_box(const u8* boxes, int row, int k) {
  constexpr int SIZE = sizeof(Element);
  const u64 place = reinterpret_cast<u64>(boxes) +
                    (K_MAJOR ? row * LINE + k * SIZE : row / 64 * BOX + k * LINE + row % 64 * SIZE);
  return *reinterpret_cast<const Element*>(place ^ (place >> 7 & 7) << 4);
}
template <class Kind, bool A_K_MAJOR, bool B_K_MAJOR, int N>
SR_FN void warpgroup_mma(typename Kind::Sum (&d)[N / 2], const u8* a_boxes, const u8* b_boxes,
                         bool accumulate) {
  using Element = typename Kind::Element;
  const int t = int(threadIdx.x) % WARPGROUP;
  for (int i = 0; i < N / 2; ++i) {
    const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + t % 4 * 2 + i % 2;
    typename Kind::Sum sum = accumulate ? d[i] : 0;
    for (int k = 0; k < Kind::K; ++k)
      sum += tensor_term(read_box<A_K_MAJOR, Element>(a_boxes, row, k),
                         read_box<B_K_MAJOR, Element>(b_boxes, column, k));
    d[i] = sum;
  }
}
SR_FN void warpgroup_arrive() {}
SR_FN void warpgroup_commit() {}
template <int PENDING>
SR_FN void warpgroup_wait() {}

}  // namespace sr

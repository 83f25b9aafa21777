// kernels/hopper.cuh for the host: the same functions in plain C++. Copies are done at once, and
// products when they are called; a thread that waits for a barrier lets the others run.
#pragma once
#include "boxes.cuh"

namespace sr {

SR_FN u8* kept(u8* x) { return x; }
template <class T>
SR_FN void pin(T&) {}

struct alignas(16) Barrier {
  u64 word;  // a Phase

  SR_FN void init(u32 arrivals);
  SR_FN void arrive();
  SR_FN void arrive_at(u32 block);
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
  host::give_way();
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
// The same place in the shared memory of a block of the cluster.
template <class T>
SR_FN T& in_block(T& x, u32 block) {
  return *reinterpret_cast<T*>(reinterpret_cast<u8*>(&x) +
                               (i64(block) - i64(blockIdx.x % host::cluster)) * host::room);
}
SR_FN void Barrier::arrive_at(u32 block) { in_block(*this, block).arrive(); }
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

SR_FN void warpgroup_sync(int) {
  static u32 waiting[host::THREADS / WARPGROUP], rounds[host::THREADS / WARPGROUP];
  const unsigned own = host::current / WARPGROUP, round = rounds[own];
  host::progress();
  if (++waiting[own] == WARPGROUP) {
    waiting[own] = 0;
    rounds[own] += 1;
  }
  while (rounds[own] == round) host::yield();
}

template <int THREADS>
SR_FN void block_sync() {
  __syncthreads();
}
template <int THREADS>
SR_FN void block_arrive() {
  __syncthreads();
}


SR_FN void wait_for_launch() {}
SR_FN void launch_dependents() {}

struct HostMap {  // the contents of a TensorMap here; sizes in elements, strides in bytes
  u8* base;
  i64 size[3], stride[3];
  i64 element, lines;
  i64 tf32;  // whether floats are rounded as they are loaded
  i64 width;  // elements of a line; 0: 128 bytes, whose pieces are swizzled

  int across() const { return int(width ? width : LINE / element); }
  int bytes() const { return int(lines * across() * element); }
};
template <class F>  // of the places of an element in the box and in the array, or there null
SR_FN void each_of_box(const TensorMap& array, u8* box, int x, int y, int z, F f) {
  const HostMap& map = reinterpret_cast<const HostMap&>(array);
  const int width = map.across(), aligned = map.width ? 128 : 1024;
  if (reinterpret_cast<u64>(box) % aligned) host::report("a box is not aligned to %d bytes", aligned);
  for (int line = 0; line < map.lines; ++line)
    for (int e = 0; e < width; ++e) {
      const bool inside = x + e < map.size[0] && y + line < map.size[1] && z < map.size[2];
      u8* there = map.base + (x + e) * map.stride[0] + (y + line) * map.stride[1] +
                  z * map.stride[2];
      const u32 at = u32((line * width + e) * map.element);
      for (int byte = 0; byte < map.element; ++byte)
        f(box + (map.width ? at : swizzled(at)) + byte, inside ? there + byte : nullptr);
    }
}
template <int BLOCKS>
SR_FN void load_box(void* to, const TensorMap& from, Barrier& at, int x, int y, int z) {
  const u32 first = BLOCKS > 1 ? 0 : block_of_cluster();
  for (u32 block = first; block < first + BLOCKS; ++block) {
    each_of_box(from, &in_block(*static_cast<u8*>(to), block), x, y, z,
                [](u8* put, const u8* get) { *put = get ? *get : 0; });
    const HostMap& map = reinterpret_cast<const HostMap&>(from);
    auto* floats = reinterpret_cast<float*>(&in_block(*static_cast<u8*>(to), block));
    for (int i = 0; map.tf32 && i < map.bytes() / 4; ++i) floats[i] = to_tf32(floats[i]);
    Phase& phase = phase_of(in_block(at, block));
    phase.bytes -= map.bytes();
    end_phase_if_complete(phase);
  }
}
SR_FN void prefetch_map(const TensorMap&) {}
SR_FN void store_box(const TensorMap& to, const void* from, int x, int y, int z) {
  each_of_box(to, static_cast<u8*>(const_cast<void*>(from)), x, y, z, [](const u8* get, u8* put) {
    if (put) *put = *get;
  });
}
SR_FN void store_commit() {}
template <int PENDING>
SR_FN void store_wait() {}
SR_FN void store_fence() {}
template <bool ACROSS = false>
SR_FN void store_matrices(void* row, const u32 (&x)[4]) {
  static u8* rows[host::THREADS];
  const unsigned own = host::current, first = own / 32 * 32, lane = own % 32;
  if (reinterpret_cast<u64>(row) % 16) host::report("a row is not aligned to 16 bytes");
  rows[own] = static_cast<u8*>(row);
  __syncwarp();  // between writing the addresses and reading them
  for (unsigned i = 0; i < 4; ++i)
    if (ACROSS)
      for (unsigned e = 0; e < 2; ++e)
        reinterpret_cast<u16*>(rows[first + 8 * i + lane % 4 * 2 + e])[lane / 4] =
            u16(x[i] >> 16 * e);
    else
      *reinterpret_cast<u32*>(rows[first + 8 * i + lane / 4] + lane % 4 * 4) = x[i];
  __syncwarp();  // between reading the addresses and writing the next
}
template <class T>
SR_FN u32 pack_x2(float low, float high) {
  if constexpr (Is<T>::half) return u32(to_half(low).bits) | u32(to_half(high).bits) << 16;
  else return u32(to_bfloat(low).bits) | u32(to_bfloat(high).bits) << 16;
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
struct Matrix {
  const u8* boxes;

  template <bool K_MAJOR>
  SR_FN static Matrix of(const u8* boxes) {
    return {boxes};
  }
  SR_FN Matrix operator+(int bytes) const { return {boxes + bytes}; }
};
template <class Kind, bool A_K_MAJOR, bool B_K_MAJOR, int N>
SR_FN void warpgroup_mma(typename Kind::Sum (&d)[N / 2], Matrix a, Matrix b, bool accumulate) {
  using Element = typename Kind::Element;
  const int t = int(threadIdx.x) % WARPGROUP;
  for (int i = 0; i < N / 2; ++i) {
    const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + t % 4 * 2 + i % 2;
    typename Kind::Sum sum = accumulate ? d[i] : 0;
    for (int k = 0; k < Kind::K; ++k)
      sum += tensor_term(read_box<A_K_MAJOR, Element>(a.boxes, row, k),
                         read_box<B_K_MAJOR, Element>(b.boxes, column, k));
    d[i] = sum;
  }
}
template <class Kind, int N>
SR_FN void warpgroup_mma(float (&d)[N / 2], const u32 (&a)[4], Matrix b, bool accumulate) {
  static u32 all[host::THREADS][4];
  const unsigned own = host::current;
  for (int i = 0; i < 4; ++i) all[own][i] = a[i];
  __syncwarp();  // between writing the left operand and reading it
  for (int i = 0; i < N / 2; ++i) {
    const int column = i / 4 * 8 + int(own) % 4 * 2 + i % 2;
    float sum = accumulate ? d[i] : 0;
    for (int k = 0; k < Kind::K; ++k)
      sum += tensor_term(bits_as<float>(all[own / 4 * 4 + k % 4][k / 4 * 2 + i / 2 % 2]),
                         read_box<true, float>(b.boxes, column, k));
    d[i] = sum;
  }
  __syncwarp();  // between reading the left operand and writing the next
}
SR_FN void warpgroup_arrive() {}
SR_FN void warpgroup_commit() {}
template <int PENDING>
SR_FN void warpgroup_wait() { __syncwarp(); }  // the warp comes together

}  // namespace sr

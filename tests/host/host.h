// CUDA's threads on the host: the threads of a block are fibers that run one at a time.
//
// The tests include this file before the kernels, and put this folder before kernels/ in the search
// path: instructions.cuh and hopper.cuh are then the host's own, everything else is as the device
// compiles it.
//
// Blocks run one after the other (those of a cluster together), and a launch does the same in the
// same order every time. A fiber runs until it waits at a barrier. A warp runs as far as it can, through all its own barriers,
// before the next one starts: so a barrier of a warp where one of the block is needed shows. Warps,
// and the threads of a warp, go upwards in even blocks and downwards in odd ones, since a missing
// barrier may show in one order only. Threads of a warp are not in step: code that needs them to be
// must say so.
#pragma once
// C's own header: reading what C++ adds to it takes longer than compiling a kernel.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#undef NAN  // an algebra has such a member

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

struct Index {
  unsigned x, y, z;
};
inline Index threadIdx, blockIdx, blockDim{1, 1, 1}, gridDim{1, 1, 1};

namespace host {

constexpr unsigned THREADS = 1024, WARP = 32;       // of a block, at most; of a warp
constexpr unsigned CLUSTER = 8;                     // blocks of a cluster, at most
constexpr unsigned STACK = 64 << 10, GUARD = 4096;  // bytes of a fiber; bytes behind shared memory

enum State { READY, YIELDING, AT_WARP, AT_BLOCK, AT_CLUSTER, DONE };  // the first two can run
struct Fiber {
  ucontext_t start;
  jmp_buf here;
  State state;
  bool begun;
};

inline Fiber fibers[CLUSTER * THREADS];  // [blocks of the cluster][blockDim.x]
inline unsigned own;                     // the fiber that runs
inline unsigned char* memory;            // [blocks of the cluster][stride]
inline unsigned stride;
inline unsigned char* shared;            // of the block that runs
inline unsigned first_block;             // of the cluster
inline jmp_buf scheduler;
inline void (*body)();     // the kernel, with its parameters
inline char trouble[256];  // the first thing that went wrong, in words

template <class... Args>
void report(const char* format, Args... args) {
  if (!trouble[0]) snprintf(trouble, sizeof trouble, format, args...);
}

// Suspend this thread; returns when the scheduler enters it again.
inline void leave(State state) {
  Fiber& fiber = fibers[own];
  fiber.state = state;
  if (!_setjmp(fiber.here)) _longjmp(scheduler, 1);
}

// A thread that polls yields to the others; a thread that changes what may be polled says so, and a
// round of all threads without such progress is a deadlock.
inline bool progressed;
inline void yield() { leave(YIELDING); }
inline void progress() { progressed = true; }

inline void enter(unsigned which) {
  Fiber& fiber = fibers[which];
  const unsigned rank = which / blockDim.x;
  own = which;
  threadIdx.x = which % blockDim.x;
  blockIdx.x = first_block + rank;
  shared = memory + size_t(rank) * stride;
  if (_setjmp(scheduler)) return;
  if (fiber.begun) _longjmp(fiber.here, 1);
  fiber.begun = true;
  setcontext(&fiber.start);
}

// A wild access ends its thread, and the launch with a message.
inline void on_fault(int, siginfo_t* fault, void*) {
  report("block %u, thread %u: access to %p", blockIdx.x, threadIdx.x, fault->si_addr);
  fibers[own].state = DONE;
  _longjmp(scheduler, 1);
}

inline void fiber_main() {
  for (;;) {  // once for each block
    body();
    leave(DONE);
  }
}

// Open a barrier of the threads [first, last) if all that have not returned wait at it. Whether any
// does.
inline bool open(unsigned first, unsigned last, State barrier) {
  bool any = false;
  for (unsigned t = first; t < last; ++t) {
    if (fibers[t].state != barrier && fibers[t].state != DONE) return false;
    any |= fibers[t].state == barrier;
  }
  for (unsigned t = first; t < last; ++t)
    if (fibers[t].state == barrier) fibers[t].state = READY;
  return any;
}

// Run the threads [first, last) of a warp until none can go on by itself.
inline void run_warp(unsigned first, unsigned last, bool upwards) {
  do {
    for (unsigned i = first; i < last; ++i) {
      const unsigned t = upwards ? i : last - 1 - (i - first);
      if (fibers[t].state <= YIELDING) enter(t);
    }
  } while (open(first, last, AT_WARP));
}

// Run the warps of the block whose fibers begin at `start`.
inline void run_block(unsigned start, bool upwards) {
  const unsigned threads = blockDim.x, warps = (threads + WARP - 1) / WARP;
  for (unsigned i = 0; i < warps; ++i) {
    const unsigned first = (upwards ? i : warps - 1 - i) * WARP;
    run_warp(start + first, start + (first + WARP < threads ? first + WARP : threads), upwards);
  }
}

// Run a cluster of blocks, or one block, to its end.
inline void run_cluster(unsigned blocks, bool upwards) {
  const unsigned threads = blockDim.x, all = blocks * threads;
  for (unsigned t = 0; t < all; ++t) fibers[t].state = READY;
  bool on;
  do {
    progressed = on = false;
    for (unsigned start = 0; start < all; start += threads) run_block(start, upwards);
    for (unsigned start = 0; start < all; start += threads)
      on |= open(start, start + threads, AT_BLOCK);
    on |= progressed || open(0, all, AT_CLUSTER);
  } while (on);
  for (unsigned t = 0; t < all; ++t)
    if (fibers[t].state != DONE)
      return report("block %u: thread %u waits for threads that never come",
                    first_block + t / threads, t % threads);
}

// Run a kernel in clusters of `cluster` blocks. Returns an empty string, or what went wrong.
template <class Params>
const char* launch(void (*kernel)(Params), unsigned blocks, unsigned cluster, unsigned threads,
                   unsigned bytes, const void* params, unsigned size) {
  static Params given;
  static void (*entry)(Params);
  trouble[0] = 0;
  if (size != sizeof(Params)) {
    report("a struct of %u bytes came, the kernel takes %u", size, unsigned(sizeof(Params)));
    return trouble;
  }
  memcpy(&given, params, size);
  entry = kernel;
  body = [] { entry(given); };
  const unsigned all = cluster * threads;
  auto* stacks = static_cast<char*>(malloc(size_t(all) * STACK));
  for (unsigned t = 0; t < all; ++t) {
    ucontext_t& start = fibers[t].start;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks + size_t(t) * STACK;
    start.uc_stack.ss_size = STACK;
    start.uc_link = nullptr;
    makecontext(&start, fiber_main, 0);
    fibers[t].begun = false;
  }
  stride = (bytes + GUARD + 1023) / 1024 * 1024;
  memory = static_cast<unsigned char*>(aligned_alloc(1024, size_t(cluster) * stride));
  struct sigaction fault = {}, before;
  fault.sa_sigaction = on_fault;
  fault.sa_flags = SA_SIGINFO | SA_NODEFER;  // the handler does not return
  sigaction(SIGSEGV, &fault, &before);
  gridDim.x = blocks;
  blockDim.x = threads;
  for (first_block = 0; first_block < blocks && !trouble[0]; first_block += cluster) {
    memset(memory, 0xff, size_t(cluster) * stride);  // NaN in every floating type
    run_cluster(cluster, first_block / cluster % 2 == 0);
    for (unsigned b = 0; b < cluster; ++b)
      for (unsigned i = 0; i < GUARD; ++i)
        if (memory[b * stride + bytes + i] != 0xff)
          report("block %u wrote %u bytes behind its %u of shared memory", first_block + b, i,
                 bytes);
  }
  sigaction(SIGSEGV, &before, nullptr);
  free(memory);
  free(stacks);
  return trouble;
}

}  // namespace host

inline void __syncthreads() { host::leave(host::AT_BLOCK); }
inline void __syncwarp(unsigned = ~0u) { host::leave(host::AT_WARP); }

// Called where -fsanitize=alignment finds an access that the device would refuse.
struct SourceLocation {
  const char* file;
  unsigned line, column;
};
extern "C" [[gnu::used]] inline void __ubsan_handle_type_mismatch_v1(const SourceLocation* at,
                                                                     void* address) {
  host::report("%s:%u: misaligned access to %p", at->file, at->line, address);
}

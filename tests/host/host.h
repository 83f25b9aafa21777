// CUDA's threads on the host: the threads of a block are fibers that run one at a time.
//
// The tests include this file before the kernels, and put this folder before kernels/ in the search
// path: instructions.cuh and hopper.cuh are then the host's own, everything else is as the device
// compiles it. host.cc has what runs the threads, compiled once for all kernels.
#pragma once
// C's own header: reading what C++ adds to it takes longer than compiling a kernel.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#include <stddef.h>
#include <string.h>
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
extern Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

constexpr unsigned THREADS = 4096, WARP = 32;  // that run at the same time, at most; of a warp

enum State { READY, YIELDING, AT_WARP, AT_BLOCK, AT_CLUSTER, DONE };  // the first two can run

extern unsigned current;           // the thread that runs, of those that run at the same time
extern unsigned cluster;           // blocks of a cluster
extern size_t room;                // bytes from the shared memory of one block to the next's
extern unsigned char* all_shared;  // [blocks that run at the same time][room]
extern unsigned char* shared;      // of this block

// The first thing that went wrong, in words, is what a launch returns.
[[gnu::format(printf, 1, 2)]] void report(const char* format, ...);

// Suspend this thread; returns when the scheduler enters it again.
void leave(State state);

// A thread that polls yields to the others; a thread that changes what may be polled says so, and a
// round of all threads without such progress is a deadlock.
void yield();
void progress();

// This thread, and its warp, go on only after all other warps have run: it has woken one of them.
void give_way();

// A fence of this thread; a word that it stores for other blocks; a word of theirs that is there.
void fence();
void stored(const void* word);
void seen(const void* word);

// How blocks run: those of a cluster, and `together` clusters, at the same time; and whether warps,
// and the threads of a warp, go upwards first.
struct Order {
  unsigned cluster, together, upwards;
};

// Run a kernel. Returns an empty string, or what went wrong.
const char* run(void (*kernel)(), unsigned blocks, unsigned threads, unsigned bytes, Order order);
const char* refuse(unsigned size, unsigned expected);

template <class Params>
const char* launch(void (*kernel)(Params), unsigned blocks, unsigned threads, unsigned bytes,
                   const void* params, unsigned size, Order order) {
  static Params given;
  static void (*entry)(Params);
  if (size && size != sizeof(Params)) return refuse(size, sizeof(Params));
  memcpy(&given, params, sizeof(Params));
  entry = kernel;
  return run([] { entry(given); }, blocks, threads, bytes, order);
}

}  // namespace host

inline void __syncthreads() { host::leave(host::AT_BLOCK); }
inline void __syncwarp(unsigned = ~0u) { host::leave(host::AT_WARP); }

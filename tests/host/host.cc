// Runs the threads of a kernel (host.h).
//
// Blocks run one after the other, and a launch does the same in the same order every time. A fiber
// runs until it waits at a barrier. A warp runs as far as it can, through all its own barriers,
// before the next one starts: so a barrier of a warp where one of the block is needed shows. Warps,
// and the threads of a warp, go upwards in even blocks and downwards in odd ones, since a missing
// barrier may show in one order only. Threads of a warp are not in step: code that needs them to be
// must say so.
#include "host.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

Index threadIdx, blockIdx, blockDim{1, 1, 1}, gridDim{1, 1, 1};

namespace host {

constexpr unsigned STACK = 64 << 10, GUARD = 4096;  // bytes of a fiber; bytes behind shared memory

unsigned current, cluster = 1;
size_t room;
unsigned char *all_shared, *shared;

namespace {

struct Fiber {
  ucontext_t start;
  jmp_buf here;
  State state;
  bool begun;
};

Fiber fibers[THREADS];  // [cluster][blockDim.x]
jmp_buf scheduler;
void (*body)();        // the kernel, with its parameters
unsigned first_block;  // of the cluster
bool progressed;
char trouble[256];

}  // namespace

void report(const char* format, ...) {
  if (trouble[0]) return;
  va_list values;
  va_start(values, format);
  vsnprintf(trouble, sizeof trouble, format, values);
  va_end(values);
}

void leave(State state) {
  Fiber& own = fibers[current];
  own.state = state;
  if (!_setjmp(own.here)) _longjmp(scheduler, 1);
}

void yield() { leave(YIELDING); }
void progress() { progressed = true; }

namespace {

void enter(unsigned thread) {
  Fiber& fiber = fibers[thread];
  const unsigned block = thread / blockDim.x;
  current = thread;
  threadIdx.x = thread % blockDim.x;
  blockIdx.x = first_block + block;
  shared = all_shared + block * room;
  if (_setjmp(scheduler)) return;
  if (fiber.begun) _longjmp(fiber.here, 1);
  fiber.begun = true;
  setcontext(&fiber.start);
}

// A wild access ends its thread, and the launch with a message.
void on_fault(int, siginfo_t* fault, void*) {
  report("block %u, thread %u: access to %p", blockIdx.x, threadIdx.x, fault->si_addr);
  fibers[current].state = DONE;
  _longjmp(scheduler, 1);
}

void fiber_main() {
  for (;;) {  // once for each block
    body();
    leave(DONE);
  }
}

// Open a barrier of the threads [first, last) if all that have not returned wait at it. Whether any
// does.
bool open(unsigned first, unsigned last, State barrier) {
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
void run_warp(unsigned first, unsigned last, bool upwards) {
  do {
    for (unsigned i = first; i < last; ++i) {
      const unsigned t = upwards ? i : last - 1 - (i - first);
      if (fibers[t].state <= YIELDING) enter(t);
    }
  } while (open(first, last, AT_WARP));
}

// Open the barriers of blocks, or that of the cluster. Whether any was opened.
bool open_blocks() {
  bool any = false;
  for (unsigned block = 0; block < cluster; ++block)
    any |= open(block * blockDim.x, (block + 1) * blockDim.x, AT_BLOCK);
  return any || open(0, cluster * blockDim.x, AT_CLUSTER);
}

void run_cluster(bool upwards) {
  const unsigned threads = blockDim.x, warps = (threads + WARP - 1) / WARP;
  for (unsigned t = 0; t < cluster * threads; ++t) fibers[t].state = READY;
  do {
    progressed = false;
    for (unsigned i = 0; i < cluster * warps; ++i) {
      const unsigned at = upwards ? i : cluster * warps - 1 - i, end = (at / warps + 1) * threads;
      const unsigned first = at / warps * threads + at % warps * WARP;
      run_warp(first, first + WARP < end ? first + WARP : end, upwards);
    }
  } while (progressed || open_blocks());
  for (unsigned t = 0; t < cluster * threads; ++t)
    if (fibers[t].state != DONE)
      return report("block %u: thread %u waits for threads that never come",
                    first_block + t / threads, t % threads);
}

}  // namespace

const char* refuse(unsigned size, unsigned expected) {
  trouble[0] = 0;
  report("a struct of %u bytes came, the kernel takes %u", size, expected);
  return trouble;
}

const char* run(void (*kernel)(), unsigned blocks, unsigned threads, unsigned bytes,
                unsigned blocks_of_cluster) {
  trouble[0] = 0;
  body = kernel;
  cluster = blocks_of_cluster;
  if (blocks % cluster || cluster * threads > THREADS) {
    report("%u blocks of %u threads in clusters of %u", blocks, threads, cluster);
    return trouble;
  }
  const unsigned together = cluster * threads;
  auto* stacks = static_cast<char*>(malloc(size_t(together) * STACK));
  for (unsigned t = 0; t < together; ++t) {
    ucontext_t& start = fibers[t].start;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks + size_t(t) * STACK;
    start.uc_stack.ss_size = STACK;
    start.uc_link = nullptr;
    makecontext(&start, fiber_main, 0);
    fibers[t].begun = false;
  }
  room = (bytes + GUARD + 1023) / 1024 * 1024;
  all_shared = static_cast<unsigned char*>(aligned_alloc(1024, cluster * room));
  struct sigaction fault = {}, before;
  fault.sa_sigaction = on_fault;
  fault.sa_flags = SA_SIGINFO | SA_NODEFER;  // the handler does not return
  sigaction(SIGSEGV, &fault, &before);
  gridDim.x = blocks;
  blockDim.x = threads;
  for (unsigned b = 0; b < blocks && !trouble[0]; b += cluster) {
    first_block = b;
    memset(all_shared, 0xff, cluster * room);  // NaN in every floating type
    run_cluster(b / cluster % 2 == 0);
    for (unsigned block = 0; block < cluster; ++block)
      for (unsigned i = 0; i < GUARD; ++i)
        if (all_shared[block * room + bytes + i] != 0xff)
          report("block %u wrote %u bytes behind its %u of shared memory", b + block, i, bytes);
  }
  sigaction(SIGSEGV, &before, nullptr);
  free(all_shared);
  free(stacks);
  return trouble;
}

}  // namespace host

// Called where -fsanitize=alignment finds an access that the device would refuse.
struct SourceLocation {
  const char* file;
  unsigned line, column;
};
extern "C" void __ubsan_handle_type_mismatch_v1(const SourceLocation* at, void* address) {
  host::report("%s:%u: misaligned access to %p", at->file, at->line, address);
}

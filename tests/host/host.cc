// Runs the threads of a kernel (host.h).
//
// Blocks run one after the other, but for those of a cluster, and of a kernel whose blocks wait for
// others. Of these all begin, and then the one that began last goes on whenever it can: what it does
// not wait for is not there, and what others should have waited for is overwritten.
//
// A fiber runs until it waits at a barrier, or for a word. A warp runs as far as it can, through all
// its own barriers, before the next one starts: so a barrier of a warp where one of the block is
// needed shows. Warps, and the threads of a warp, go upwards in even blocks and downwards in odd
// ones, or the other way round, as the caller says: a missing barrier may show in one order only.
// Threads of a warp are not in step: code that needs them to be must say so.
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

Fiber fibers[THREADS];  // [resident][blockDim.x]
jmp_buf scheduler;
void (*body)();        // the kernel, with its parameters
unsigned resident;     // blocks that run at the same time
unsigned first_block;  // of them
bool progressed, gives_way;
bool fenced;       // whether this thread has come to a fence since it was entered
const void* bare;  // the last word that was stored without a fence before it
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
void give_way() {
  gives_way = true;
  leave(READY);
}
void fence() { fenced = true; }
void stored(const void* word) {
  progress();
  if (!fenced) bare = word;
}
void seen(const void* word) {
  if (word == bare) report("block %u waits for a word stored without a fence", blockIdx.x);
}

namespace {

void enter(unsigned thread) {
  Fiber& fiber = fibers[thread];
  const unsigned block = thread / blockDim.x;
  current = thread;
  threadIdx.x = thread % blockDim.x;
  blockIdx.x = first_block + block;
  shared = all_shared + block * room;
  fenced = false;
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

// Run the threads [first, last) of a warp until none can go on by itself, or one gives way.
void run_warp(unsigned first, unsigned last, bool upwards) {
  do {
    for (unsigned i = first; i < last; ++i) {
      const unsigned t = upwards ? i : last - 1 - (i - first);
      if (fibers[t].state <= YIELDING) enter(t);
      if (gives_way) {
        gives_way = false;
        return;
      }
    }
  } while (open(first, last, AT_WARP));
}

// Run the warps of a block, each until it can go on no further.
void run_block(unsigned block, bool upwards) {
  const unsigned threads = blockDim.x, warps = (threads + WARP - 1) / WARP;
  const unsigned end = (block + 1) * threads;
  for (unsigned i = 0; i < warps; ++i) {
    const unsigned first = block * threads + (upwards ? i : warps - 1 - i) * WARP;
    run_warp(first, first + WARP < end ? first + WARP : end, upwards);
  }
}

// Open the barriers of clusters. Whether any was opened.
bool open_clusters() {
  bool any = false;
  for (unsigned block = 0; block < resident; block += cluster)
    any |= open(block * blockDim.x, (block + cluster) * blockDim.x, AT_CLUSTER);
  return any;
}

void run_resident(bool upwards) {
  const unsigned threads = blockDim.x;
  for (unsigned t = 0; t < resident * threads; ++t) fibers[t].state = READY;
  for (unsigned block = 0; block < resident; ++block) run_block(block, upwards);
  do {
    progressed = false;
    for (unsigned block = resident; block-- > 0 && !progressed;)
      do run_block(block, upwards);
      while (!progressed && open(block * threads, (block + 1) * threads, AT_BLOCK));
  } while (progressed || open_clusters());
  for (unsigned t = 0; t < resident * threads; ++t)
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

const char* run(void (*kernel)(), unsigned blocks, unsigned threads, unsigned bytes, Order order) {
  trouble[0] = 0;
  bare = nullptr;
  body = kernel;
  cluster = order.cluster;
  const unsigned wave = cluster * order.together, most = wave < blocks ? wave : blocks;
  if (blocks % cluster || most * threads > THREADS) {
    report("%u blocks of %u threads in clusters of %u", blocks, threads, cluster);
    return trouble;
  }
  auto* stacks = static_cast<char*>(malloc(size_t(most) * threads * STACK));
  for (unsigned t = 0; t < most * threads; ++t) {
    ucontext_t& start = fibers[t].start;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks + size_t(t) * STACK;
    start.uc_stack.ss_size = STACK;
    start.uc_link = nullptr;
    makecontext(&start, fiber_main, 0);
    fibers[t].begun = false;
  }
  room = (bytes + GUARD + 1023) / 1024 * 1024;
  all_shared = static_cast<unsigned char*>(aligned_alloc(1024, most * room));
  struct sigaction fault = {}, before;
  fault.sa_sigaction = on_fault;
  fault.sa_flags = SA_SIGINFO | SA_NODEFER;  // the handler does not return
  sigaction(SIGSEGV, &fault, &before);
  gridDim.x = blocks;
  blockDim.x = threads;
  for (unsigned b = 0; b < blocks && !trouble[0]; b += wave) {
    first_block = b;
    resident = b + wave < blocks ? wave : blocks - b;
    memset(all_shared, 0xff, resident * room);  // NaN in every floating type
    run_resident(b / wave % 2 != order.upwards);
    for (unsigned block = 0; block < resident; ++block)
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

// The threads of a block as fibers on one OS thread. A fiber gives way only at a barrier or at a
// collective of its warp; which one goes first is the caller's choice, and no result may depend on it. A warp
// runs as far as barriers of its block let it before another one does, so that what a missing barrier would
// have kept apart meets. Asynchronous work is done as late as its waits allow. What no kernel changes is in
// fibers.cpp, compiled once and linked to every kernel.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>
#if !defined(__x86_64__) || defined(ON_CPU_UCONTEXT)
#define ON_CPU_PORTABLE
#include <ucontext.h>
#endif

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };

// Shared variables live in one section of the library, so that every block can begin with it poisoned.
extern "C" char __start_oncpu_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_oncpu_shared[] __attribute__((weak, visibility("hidden")));

namespace oncpu __attribute__((visibility("hidden"))) {

constexpr unsigned WARP = 32;
constexpr size_t STACK = 64 * 1024;
// From one stack to the next: by 64 KiB alone the ends of all of them, where fibers work, would compete for a few lines
// of the processor's caches.
constexpr size_t STRIDE = STACK + 13 * 64;
constexpr size_t SLACK = 256 * 1024;            // below the first stack, so that it may overflow
constexpr uint64_t GUARD = 0x5afe57acc0ffee00;  // at the far end of each stack
// Bytes of shared memory that nobody wrote: NaN, which a maximum ignores, or in descending order 3.4e38.
constexpr int POISON = 0xff, LARGE_POISON = 0x7f;

// What a launch returns; runner.py has the words, races.h one more.
enum Fault : int {
    NONE = 0, DIVERGENT_BARRIER = 1, DIVERGENT_WARP = 2, DEEP_STACK = 3, MISALIGNED_COPY = 5, LEFT_COPY = 6, OVERTAKEN_COPY = 7
};

// --- switching stacks ---------------------------------------------------------------------------------

#ifdef ON_CPU_PORTABLE
struct Context { ucontext_t uc; };
#else
struct Context { void *sp = nullptr; };
#endif
void swap(Context &from, Context &to);

enum State : uint8_t { READY, YIELDED, AT_BARRIER, AT_WARP, DONE };

// Work that a thread asked for and that goes on beside it, in groups.
template <class Task> struct Tasks {
    std::vector<Task> tasks;
    std::vector<size_t> ends;  // of groups
    void end_group();
    // Do all but the n groups asked for last, and what is in no group yet.
    void leave(size_t n);
    void clear();
};
using Later = Tasks<std::function<void()>>;

// Up to 16 bytes on their way to shared memory (rk_copy); zeros after the first n_byte.
struct Copy {
    char *to;
    const char *from;
    int bytes, n_byte;
    void operator()() const;
};

struct Fiber {
    Context context;
    uint3 thread;
    unsigned linear;  // number of the thread in its block
    State state;
    uint64_t slot;    // what it hands to the lanes of its warp
    unsigned mask;    // the lanes that its collective waits for
    Tasks<Copy> copies;
    Later stores, products;
};

// One launch: the fibers of the block at work, and what they share.
struct Launch {
    dim3 grid, block;
    uint3 at;                     // the block at work
    std::vector<Fiber> fibers;
    unsigned seed;                // 0: fibers in ascending order, 1: descending, others: shuffled
    int poison;
    std::vector<unsigned> warps, lanes;                             // in the order of their visits
    std::vector<std::pair<uint64_t, std::function<void()>>> copies;  // that a barrier in memory counts
    char *stacks = nullptr;
    char *shared = nullptr;       // dynamic shared memory of the block at work, of exactly the size asked for
    unsigned together = 1, bytes = 0;  // blocks that run together, and from the shared memory of one to the next
    char *memory = nullptr;       // of the first of them
    Context scheduler;
    Fiber *running = nullptr;
    Fault fault = NONE;           // the first that a thread met
    void (*body)(void *) = nullptr;
    void *arguments = nullptr;
};

extern __thread Launch *current;

// Let others run; until then the thread waits as `state` says.
void give_way(State state);

// Let other warps run, for a thread that waits for them in a loop.
static inline void yield() { give_way(YIELDED); }

// Ask for a copy to shared memory; until it lands its place is poison.
void copy(char *to, const void *from, int bytes, int n_byte);

// Do the copies that a barrier in memory waits for; whether there were any.
bool land(uint64_t barrier);

// 0, 1, 2, ... n - 1 for order 0, backwards for 1, shuffled by the seed `order` from 2 on.
std::vector<unsigned> visits(unsigned n, unsigned order);

// Make a thread ready to begin.
void arm(Fiber &fiber, char *stack);

// Run a warp until none of its lanes can go on, or those that can have let others run first; whether any did.
bool run_warp(Launch &launch, unsigned first, unsigned lanes);

// What is wrong with threads that are done.
Fault left_behind(const Launch &launch, unsigned n);

// Run all blocks of a launch, whose threads call `body(arguments)`.
// Runs the blocks that run together, of which `first` is given, to their end.
using Run = Fault (*)(Launch &launch, uint3 first);
Fault run_block(Launch &launch, uint3 at);

Fault launch(dim3 grid, dim3 block, unsigned shared, unsigned order, void (*body)(void *), void *arguments, unsigned together,
             Run run);
template <class F>
Fault launch(dim3 grid, dim3 block, unsigned shared, unsigned order, F body, unsigned together = 1, Run run = run_block) {
    return launch(grid, block, shared, order, [](void *f) { (*static_cast<F *>(f))(); }, &body, together, run);
}

// Call a kernel with arguments given by their addresses, as the driver does.
template <class... A, size_t... I>
static void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<A> *>(arguments[I])...);
}
template <class... A> static void call(void (*kernel)(A...), void **arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>{});
}

}  // namespace oncpu

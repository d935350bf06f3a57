// The threads of a block as fibers on one OS thread. A fiber gives way only at a barrier or at a
// collective of its warp; which one goes first is the caller's choice, and no result may depend on it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <tuple>
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

namespace oncpu {

constexpr unsigned WARP = 32;
constexpr size_t STACK = 64 * 1024;
constexpr size_t SLACK = 256 * 1024;            // below the first stack, so that it may overflow
constexpr uint64_t GUARD = 0x5afe57acc0ffee00;  // at the far end of each stack
constexpr int POISON = 0xff;                    // floats of these bytes are NaN

// What a launch returns; runner.py has the words.
enum Fault : int { NONE = 0, DIVERGENT_BARRIER = 1, DIVERGENT_WARP = 2, DEEP_STACK = 3 };

// --- switching stacks ---------------------------------------------------------------------------------

#ifdef ON_CPU_PORTABLE
struct Context { ucontext_t uc; };
static inline void swap(Context &from, Context &to) { swapcontext(&from.uc, &to.uc); }
#else
// x86-64 System V: put the callee-saved registers on the stack, then change stacks. A tenth of the cost
// of swapcontext, which asks the kernel for the signal mask each time.
struct Context { void *sp = nullptr; };
extern "C" void oncpu_swap(void **from, void *to);
asm(R"(
.text
.local oncpu_swap
.type oncpu_swap,@function
oncpu_swap:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
.size oncpu_swap,.-oncpu_swap
)");
static inline void swap(Context &from, Context &to) { oncpu_swap(&from.sp, to.sp); }
#endif

enum State : uint8_t { READY, AT_BARRIER, AT_WARP, DONE };

struct Fiber {
    Context context;
    uint3 thread;
    unsigned linear;  // number of the thread in its block
    State state;
    uint64_t slot;    // what it hands to the lanes of its warp
    unsigned mask;    // the lanes that its collective waits for
};

// One launch: the fibers of the block at work, and what they share.
struct Launch {
    dim3 grid, block;
    uint3 at;                     // the block at work
    std::vector<Fiber> fibers;
    std::vector<unsigned> order;  // in which the fibers are visited
    char *stacks = nullptr;
    char *shared = nullptr;       // dynamic shared memory, of exactly the size asked for
    Context scheduler;
    Fiber *running = nullptr;
    void (*body)(void *) = nullptr;
    void *arguments = nullptr;
};

static thread_local Launch *current = nullptr;

static inline void give_way(State state) {
    Fiber *fiber = current->running;
    fiber->state = state;
    swap(fiber->context, current->scheduler);
}

static void fiber_main() {
    current->body(current->arguments);
    give_way(DONE);
    std::abort();  // nobody wakes a fiber that is done
}

static void arm(Fiber &fiber, char *stack) {
    std::memcpy(stack, &GUARD, sizeof GUARD);
    fiber.state = READY;
#ifdef ON_CPU_PORTABLE
    getcontext(&fiber.context.uc);
    fiber.context.uc.uc_stack.ss_sp = stack;
    fiber.context.uc.uc_stack.ss_size = STACK;
    fiber.context.uc.uc_link = nullptr;
    makecontext(&fiber.context.uc, fiber_main, 0);
#else
    void **sp = reinterpret_cast<void **>((reinterpret_cast<uintptr_t>(stack) + STACK) & ~uintptr_t(15));
    *--sp = nullptr;                                // keeps the stack aligned as a call would
    *--sp = reinterpret_cast<void *>(&fiber_main);  // where the first swap returns to
    sp -= 6;                                        // the registers that it pops: any values
    std::fill(sp, sp + 6, nullptr);
    fiber.context.sp = sp;
#endif
}

// --- one block ----------------------------------------------------------------------------------------

// Let the lanes of a warp go on whose partners have all arrived; exited lanes are not waited for.
static bool free_warp(Fiber *warp, unsigned lanes) {
    unsigned arrived = 0, alive = 0, free = 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        arrived |= unsigned(warp[lane].state == AT_WARP) << lane;
        alive |= unsigned(warp[lane].state != DONE) << lane;
    }
    for (unsigned lane = 0; lane < lanes; ++lane) {
        unsigned partners = warp[lane].mask & alive;
        bool together = (arrived >> lane & 1) && !(partners & ~arrived);
        for (unsigned other = 0; together && other < lanes; ++other)  // all must name the same lanes
            together = !(partners >> other & 1) || (warp[other].mask & alive) == partners;
        free |= unsigned(together) << lane;
    }
    for (unsigned lane = 0; lane < lanes; ++lane)
        if (free >> lane & 1) warp[lane].state = READY;
    return free != 0;
}

// Run a block to its end. A barrier that not all threads reach is reported: on a GPU it may hang.
static Fault run_block(Launch &launch) {
    auto &fibers = launch.fibers;
    unsigned n = fibers.size();
    for (unsigned i = 0; i < n; ++i) arm(fibers[i], launch.stacks + i * STACK);
    for (;;) {
        for (unsigned i : launch.order)
            if (fibers[i].state == READY) {
                launch.running = &fibers[i];
                swap(launch.scheduler, fibers[i].context);
            }
        bool freed = false;
        for (unsigned first = 0; first < n; first += WARP)
            freed |= free_warp(&fibers[first], std::min(WARP, n - first));
        if (freed) continue;
        unsigned done = 0, waiting = 0;
        for (auto &fiber : fibers) done += fiber.state == DONE, waiting += fiber.state == AT_BARRIER;
        if (waiting == n) {
            for (auto &fiber : fibers) fiber.state = READY;
            continue;
        }
        if (done < n) return done + waiting < n ? DIVERGENT_WARP : DIVERGENT_BARRIER;
        for (unsigned i = 0; i < n; ++i)
            if (std::memcmp(launch.stacks + i * STACK, &GUARD, sizeof GUARD)) return DEEP_STACK;
        return NONE;
    }
}

// --- one launch ---------------------------------------------------------------------------------------

// 0, 1, 2, ... n - 1 for order 0, backwards for 1, shuffled by the seed `order` from 2 on.
static std::vector<unsigned> visits(unsigned n, unsigned order) {
    std::vector<unsigned> v(n);
    std::iota(v.begin(), v.end(), 0u);
    if (order == 1) std::reverse(v.begin(), v.end());
    uint64_t state = order;
    for (size_t i = n; order >= 2 && i > 1; --i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        std::swap(v[i - 1], v[(state >> 33) % i]);
    }
    return v;
}

template <class F> Fault launch(dim3 grid, dim3 block, unsigned shared, unsigned order, F body) {
    Launch launch;
    launch.grid = grid;
    launch.block = block;
    unsigned n = block.x * block.y * block.z, n_block = grid.x * grid.y * grid.z;
    launch.fibers.resize(n);
    for (unsigned i = 0; i < n; ++i) {
        launch.fibers[i].linear = i;
        launch.fibers[i].thread = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    }
    launch.order = visits(n, order);
    char *memory = static_cast<char *>(std::malloc(n * STACK + SLACK));
    launch.stacks = memory + SLACK;
    if (!memory || posix_memalign(reinterpret_cast<void **>(&launch.shared), 128, shared)) std::abort();
    launch.body = [](void *f) { (*static_cast<F *>(f))(); };
    launch.arguments = &body;
    Launch *outer = std::exchange(current, &launch);
    Fault fault = NONE;
    for (unsigned b : visits(n_block, order)) {
        launch.at = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        if (__start_oncpu_shared)
            std::memset(__start_oncpu_shared, POISON, __stop_oncpu_shared - __start_oncpu_shared);
        std::memset(launch.shared, POISON, shared);
        fault = run_block(launch);
        if (fault) break;
    }
    current = outer;
    std::free(launch.shared);
    std::free(memory);
    return fault;
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

// What fibers.h names: stacks, warps, blocks and a launch. One object serves all kernels compiled with the same options.
#include "fibers.h"

#include <numeric>

namespace oncpu {

__thread Launch *current = nullptr;

// --- switching stacks ---------------------------------------------------------------------------------

#ifdef ON_CPU_PORTABLE
void swap(Context &from, Context &to) { swapcontext(&from.uc, &to.uc); }
#else
// x86-64 System V: put the callee-saved registers on the stack, then change stacks. A tenth of the cost
// of swapcontext, which asks the kernel for the signal mask each time.
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
void swap(Context &from, Context &to) { oncpu_swap(&from.sp, to.sp); }
#endif

template <class Task> void Tasks<Task>::end_group() { ends.push_back(tasks.size()); }
template <class Task> void Tasks<Task>::clear() { tasks.clear(), ends.clear(); }
template <class Task> void Tasks<Task>::leave(size_t n) {
    if (ends.size() <= n) return;
    size_t groups = ends.size() - n, done = ends[groups - 1];
    for (size_t i = 0; i < done; ++i) tasks[i]();
    tasks.erase(tasks.begin(), tasks.begin() + done);
    ends.erase(ends.begin(), ends.begin() + groups);
    for (auto &end : ends) end -= done;
}
template struct Tasks<Copy>;
template struct Tasks<std::function<void()>>;

void give_way(State state) {
    Fiber *fiber = current->running;
    fiber->state = state;
    swap(fiber->context, current->scheduler);
}

static void report(Fault fault) {
    if (!current->fault) current->fault = fault;
}

// Whether nobody has written to the place of a copy since it was asked for; a look that races.h does not count.
__attribute__((no_sanitize("thread"))) static bool untouched(const Copy &copy) {
    for (int i = 0; i < copy.bytes; i += 4)
        if (*reinterpret_cast<uint32_t *>(copy.to + i) != 0x01010101u * current->poison) return false;
    return true;
}
void Copy::operator()() const {
    if (!untouched(*this)) report(OVERTAKEN_COPY);
    for (int i = 0; i < bytes; ++i) to[i] = i < n_byte ? from[i] : 0;
}

void copy(char *to, const void *from, int bytes, int n_byte) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes) report(MISALIGNED_COPY);
    std::memset(to, current->poison, bytes);
    current->running->copies.tasks.push_back({to, static_cast<const char *>(from), bytes, n_byte});
}

bool land(uint64_t barrier) {
    auto &copies = current->copies;
    size_t before = copies.size(), kept = 0;
    for (size_t i = 0; i < before; ++i) {
        if (copies[i].first == barrier) copies[i].second();
        else std::swap(copies[kept++], copies[i]);
    }
    copies.resize(kept);
    return kept < before;
}

static void fiber_main() {
    current->body(current->arguments);
    give_way(DONE);
    std::abort();  // nobody wakes a fiber that is done
}

void arm(Fiber &fiber, char *stack) {
    std::memcpy(stack, &GUARD, sizeof GUARD);
    fiber.state = READY;
    fiber.copies.clear(), fiber.stores.clear(), fiber.products.clear();
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
    unsigned arrived = 0, alive = 0, named = ~0u, free = 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        alive |= unsigned(warp[lane].state != DONE) << lane;
        if (warp[lane].state != AT_WARP) continue;
        arrived |= 1u << lane;
        named &= warp[lane].mask;
    }
    if (!arrived) return false;
    if (arrived == alive && !(alive & ~named)) {  // as a rule all are here, and each names all
        for (unsigned lane = 0; lane < lanes; ++lane)
            if (alive >> lane & 1) warp[lane].state = READY;
        return true;
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

bool run_warp(Launch &launch, unsigned first, unsigned lanes) {
    Fiber *warp = &launch.fibers[first];
    bool ran = false;
    do
        for (unsigned lane : launch.lanes)
            if (lane < lanes && warp[lane].state == READY) {
                launch.running = &warp[lane];
                swap(launch.scheduler, warp[lane].context);
                ran = true;
            }
    while (free_warp(warp, lanes));
    for (unsigned lane = 0; lane < lanes; ++lane)
        if (warp[lane].state == YIELDED) warp[lane].state = READY;
    return ran;
}

Fault left_behind(const Launch &launch, unsigned n) {
    for (unsigned i = 0; i < n; ++i) {
        if (std::memcmp(launch.stacks + i * STRIDE, &GUARD, sizeof GUARD)) return DEEP_STACK;
        if (!launch.fibers[i].copies.tasks.empty()) return LEFT_COPY;
    }
    return NONE;
}

// Run a block to its end. A barrier that not all threads reach is reported: on a GPU it may hang.
Fault run_block(Launch &launch, uint3 at) {
    launch.at = at;
    auto &fibers = launch.fibers;
    unsigned n = fibers.size(), n_warp = (n + WARP - 1) / WARP, n_barrier = 0;
    launch.copies.clear();
    for (unsigned i = 0; i < n; ++i) arm(fibers[i], launch.stacks + i * STRIDE);
    for (;;) {
        bool ran = false;
        for (unsigned w : launch.warps) ran |= run_warp(launch, w * WARP, std::min(WARP, n - w * WARP));
        if (ran) continue;
        unsigned done = 0, waiting = 0;
        for (auto &fiber : fibers) done += fiber.state == DONE, waiting += fiber.state == AT_BARRIER;
        if (waiting == n) {
            for (auto &fiber : fibers) fiber.state = READY;
            if (launch.seed >= 2) launch.warps = visits(n_warp, launch.seed + ++n_barrier);
            continue;
        }
        if (done < n) return done + waiting < n ? DIVERGENT_WARP : DIVERGENT_BARRIER;
        return left_behind(launch, n);
    }
}

// --- one launch ---------------------------------------------------------------------------------------

std::vector<unsigned> visits(unsigned n, unsigned order) {
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

// Poison what is declared __shared__ with a size.
#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize("address"))) static void poison_fixed(int poison) {  // memset may not pass between variables
    for (char *p = __start_oncpu_shared; p < __stop_oncpu_shared; ++p) *static_cast<volatile char *>(p) = char(poison);
}
#else
static void poison_fixed(int poison) {
    if (__start_oncpu_shared) std::memset(__start_oncpu_shared, poison, __stop_oncpu_shared - __start_oncpu_shared);
}
#endif

Fault launch(dim3 grid, dim3 block, unsigned shared, unsigned order, void (*body)(void *), void *arguments, unsigned together,
             Run run) {
    Launch launch;
    launch.grid = grid;
    launch.block = block;
    launch.together = together;
    launch.bytes = together > 1 ? (shared + 1023) / 1024 * 1024 : shared;
    unsigned n = block.x * block.y * block.z, across = grid.x / together;
    if (grid.x % together) std::abort();
    launch.fibers.resize(n * together);
    for (unsigned i = 0; i < n * together; ++i) {
        unsigned k = i % n;
        launch.fibers[i].linear = k;
        launch.fibers[i].thread = {k % block.x, k / block.x % block.y, k / (block.x * block.y)};
    }
    launch.seed = order;
    launch.poison = order == 1 ? LARGE_POISON : POISON;
    launch.warps = visits((n + WARP - 1) / WARP, order);
    launch.lanes = visits(WARP, order);
    size_t bytes = size_t(together) * launch.bytes;
    char *stacks = static_cast<char *>(std::malloc(size_t(together) * n * STRIDE + SLACK));
    launch.stacks = stacks + SLACK;
    if (!stacks || posix_memalign(reinterpret_cast<void **>(&launch.memory), 128, bytes)) std::abort();
    launch.shared = launch.memory;
    launch.body = body;
    launch.arguments = arguments;
    Launch *outer = std::exchange(current, &launch);
    Fault fault = NONE;
    for (unsigned b : visits(across * grid.y * grid.z, order)) {
        poison_fixed(launch.poison);
        std::memset(launch.memory, launch.poison, bytes);
        fault = run(launch, {b % across * together, b / across % grid.y, b / across / grid.y});
        if (launch.fault) fault = launch.fault;
        if (fault) break;
    }
    current = outer;
    std::free(launch.memory);
    std::free(stacks);
    return fault;
}

}  // namespace oncpu

// Finds races on shared memory: two threads of a block reach one byte, at least one of them writes, and
// no barrier lies between. g++ calls these functions for every access under -fsanitize=thread; its own
// library is not linked. A barrier orders all threads of a block, a collective the lanes that it names.
// Two writes are no race here, as many threads may write one value. Atomics and what the scheduler does are
// left out; copies count when they land. Kernels with barriers in memory (rk_tma.cuh) order
// their threads by other means.
#pragma once
#include <cstdio>

#include "cuda_on_cpu.h"
#define ON_CPU_PLAIN __attribute__((no_sanitize("thread")))

namespace oncpu {

constexpr unsigned MOST_THREADS = 1024;
struct Access { uint64_t turn; uint32_t thread, step; };  // barriers passed, who, steps of the lane
struct Byte { Access write, read, other; };               // `other`: of another warp than `read`

static struct Races {
    Byte *fixed, *dynamic;
    size_t n_fixed, n_dynamic;
    uint64_t serial, turn[MOST_THREADS];
    uint32_t clock[MOST_THREADS][WARP], shown[MOST_THREADS][WARP];  // steps of each lane that a lane knows
    int quiet, found, by[2];
    void *place;
} races;

struct Quiet {
    ON_CPU_PLAIN Quiet() { ++races.quiet; }
    ON_CPU_PLAIN ~Quiet() { --races.quiet; }
};

// Whether the thread at work may not have seen an access of another one.
ON_CPU_PLAIN static inline bool apart(const Access &a, unsigned me) {
    if (a.turn != races.turn[me] || a.thread == me) return false;
    return a.thread / WARP != me / WARP || a.step > races.clock[me][a.thread % WARP];
}

ON_CPU_PLAIN static void reach(void *p, size_t n, bool writes, void *place) {
    if (!current || !current->running || races.quiet) return;
    char *at = (char *)p;
    Byte *bytes;
    if (__start_oncpu_shared && at >= __start_oncpu_shared && at < __stop_oncpu_shared)
        bytes = races.fixed + (at - __start_oncpu_shared);
    else if (at >= current->shared && at < current->shared + races.n_dynamic)
        bytes = races.dynamic + (at - current->shared);
    else return;
    unsigned me = current->running->linear;
    Access now = {races.turn[me], me, races.clock[me][me % WARP]};
    for (size_t i = 0; i < n; ++i) {
        Byte &b = bytes[i];
        const Access *against = apart(b.write, me) ? &b.write : nullptr;
        if (writes) {
            if (against) against = nullptr;
            if (apart(b.read, me)) against = &b.read;
            if (apart(b.other, me)) against = &b.other;
            b.write = now;
        } else {
            if (b.read.turn == now.turn && b.read.thread / WARP != me / WARP) b.other = b.read;
            b.read = now;
        }
        if (against && !races.found) races.found = 1, races.by[0] = me, races.by[1] = against->thread, races.place = place;
    }
}

// What every thread does first in a block.
ON_CPU_PLAIN static void begin_races() {
    unsigned me = current->running->linear;
    uint64_t block = (uint64_t(current->at.z) * current->grid.y + current->at.y) * current->grid.x + current->at.x;
    races.turn[me] = (races.serial << 44) + (block << 20);
    ++races.clock[me][me % WARP];
}

ON_CPU_PLAIN static void barrier_passed() {
    unsigned me = current->running->linear;
    ++races.turn[me], ++races.clock[me][me % WARP];
}

// Lanes of a mask meet: each then knows the steps of the others.
ON_CPU_PLAIN static void meet(unsigned mask = ~0u) {
    unsigned me = current->running->linear, first = me / WARP * WARP;
    std::memcpy(races.shown[me], races.clock[me], sizeof races.clock[me]);
    __syncwarp(mask);
    for (unsigned lane = 0; lane < WARP; ++lane)
        for (unsigned k = 0; mask >> lane & 1 && k < WARP; ++k)
            if (races.shown[first + lane][k] > races.clock[me][k]) races.clock[me][k] = races.shown[first + lane][k];
    __syncwarp(mask);
    ++races.clock[me][me % WARP];
}

ON_CPU_PLAIN static void start_races(unsigned shared) {
    ++races.serial;
    races.found = races.quiet = 0;
    races.n_fixed = __start_oncpu_shared ? __stop_oncpu_shared - __start_oncpu_shared : 0;
    if (!races.fixed) races.fixed = (Byte *)std::calloc(races.n_fixed + 1, sizeof(Byte));
    if (shared > races.n_dynamic || !races.dynamic) {
        std::free(races.dynamic);
        races.dynamic = (Byte *)std::calloc(shared + 1, sizeof(Byte));
    }
    races.n_dynamic = shared;
}

// 4 where threads race, else what the launch returned.
ON_CPU_PLAIN static int end_races(int fault) {
    if (races.found && std::getenv("RPUKIT_SHOW_RACES"))
        std::fprintf(stderr, "threads %d and %d race at %p\n", races.by[0], races.by[1], (void *)races.place);
    return fault == NONE && races.found ? 4 : fault;
}

}  // namespace oncpu

#define ON_CPU_TSAN(n)                                                                                     \
    extern "C" ON_CPU_PLAIN void __tsan_read##n(void *p) { oncpu::reach(p, n, false, __builtin_return_address(0)); }            \
    extern "C" ON_CPU_PLAIN void __tsan_write##n(void *p) { oncpu::reach(p, n, true, __builtin_return_address(0)); }            \
    extern "C" ON_CPU_PLAIN void __tsan_unaligned_read##n(void *p) { oncpu::reach(p, n, false, __builtin_return_address(0)); }  \
    extern "C" ON_CPU_PLAIN void __tsan_unaligned_write##n(void *p) { oncpu::reach(p, n, true, __builtin_return_address(0)); }
ON_CPU_TSAN(1) ON_CPU_TSAN(2) ON_CPU_TSAN(4) ON_CPU_TSAN(8) ON_CPU_TSAN(16)
extern "C" ON_CPU_PLAIN void __tsan_read_range(void *p, size_t n) { oncpu::reach(p, n, false, __builtin_return_address(0)); }
extern "C" ON_CPU_PLAIN void __tsan_write_range(void *p, size_t n) { oncpu::reach(p, n, true, __builtin_return_address(0)); }
extern "C" ON_CPU_PLAIN void __tsan_init() {}
extern "C" ON_CPU_PLAIN void __tsan_func_entry(void *) {}
extern "C" ON_CPU_PLAIN void __tsan_func_exit() {}
extern "C" ON_CPU_PLAIN void __tsan_vptr_update(void **, void *) {}

// The same functions, which say what they order.
#define __syncthreads() ((__syncthreads)(), oncpu::barrier_passed())
#define ON_CPU_COUNTED(call) ([&](int p_) { int r_ = (call)(p_); oncpu::barrier_passed(); return r_; })
#define __syncthreads_count(p) ON_CPU_COUNTED(__syncthreads_count)(p)
#define __syncthreads_or(p) ON_CPU_COUNTED(__syncthreads_or)((p) != 0)
#define __syncthreads_and(p) ON_CPU_COUNTED(__syncthreads_and)((p) != 0)
#define __syncwarp(...) oncpu::meet(__VA_ARGS__)
#define ON_CPU_MET(call, mask, ...) (oncpu::meet(mask), (call)(mask, __VA_ARGS__))
#define __shfl_sync(mask, ...) ON_CPU_MET(__shfl_sync, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) ON_CPU_MET(__shfl_xor_sync, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) ON_CPU_MET(__shfl_down_sync, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) ON_CPU_MET(__shfl_up_sync, mask, __VA_ARGS__)
#define __ballot_sync(mask, ...) ON_CPU_MET(__ballot_sync, mask, __VA_ARGS__)
#define __any_sync(mask, ...) ON_CPU_MET(__any_sync, mask, __VA_ARGS__)
#define __all_sync(mask, ...) ON_CPU_MET(__all_sync, mask, __VA_ARGS__)
#define __reduce_add_sync(mask, ...) ON_CPU_MET(__reduce_add_sync, mask, __VA_ARGS__)
#define __reduce_min_sync(mask, ...) ON_CPU_MET(__reduce_min_sync, mask, __VA_ARGS__)
#define __reduce_max_sync(mask, ...) ON_CPU_MET(__reduce_max_sync, mask, __VA_ARGS__)
#define __reduce_or_sync(mask, ...) ON_CPU_MET(__reduce_or_sync, mask, __VA_ARGS__)
#define __reduce_and_sync(mask, ...) ON_CPU_MET(__reduce_and_sync, mask, __VA_ARGS__)
#define ON_CPU_QUIET(call) ([](auto *p_, auto... v_) { oncpu::Quiet quiet_; return (call)(p_, v_...); })
#define atomicAdd(...) ON_CPU_QUIET(atomicAdd)(__VA_ARGS__)
#define atomicSub(...) ON_CPU_QUIET(atomicSub)(__VA_ARGS__)
#define atomicMax(...) ON_CPU_QUIET(atomicMax)(__VA_ARGS__)
#define atomicMin(...) ON_CPU_QUIET(atomicMin)(__VA_ARGS__)
#define atomicOr(...) ON_CPU_QUIET(atomicOr)(__VA_ARGS__)
#define atomicAnd(...) ON_CPU_QUIET(atomicAnd)(__VA_ARGS__)
#define atomicXor(...) ON_CPU_QUIET(atomicXor)(__VA_ARGS__)
#define atomicExch(...) ON_CPU_QUIET(atomicExch)(__VA_ARGS__)
#define atomicCAS(...) ON_CPU_QUIET(atomicCAS)(__VA_ARGS__)

#undef ON_CPU_EXPORT
#define ON_CPU_EXPORT(kernel)                                                                             \
    extern "C" __attribute__((visibility("default"))) int kernel##__launch(                               \
        const unsigned *grid, const unsigned *block, unsigned shared, unsigned order, void **args) {     \
        oncpu::start_races(shared);                                                                       \
        return oncpu::end_races(oncpu::launch({grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, \
                                              order, [&] { oncpu::begin_races(), oncpu::call(kernel, args); }));   \
    }

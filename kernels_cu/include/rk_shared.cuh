// Shared memory by address, and copies to it that run while a kernel works (cp.async).
// RK_ON_CPU: addresses count from the beginning of the dynamic part; a copy poisons its place and lands as late
// as its wait allows.
#pragma once
#include "rk_types.cuh"
typedef unsigned short u16;

#ifdef RK_ON_CPU
static inline u32 rk_shared_address(const void *p) { return u32((const char *)p - oncpu::current->memory); }
static inline char *rk_shared(u32 address) { return oncpu::current->memory + address; }
static inline const char *rk_at(u32 address) { return rk_shared(address); }
static inline void rk_yield() { oncpu::yield(); }
#else
__device__ __forceinline__ u32 rk_shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ const char *rk_at(u32 address) { return (const char *)__cvta_shared_to_generic(address); }
#endif

// Up to BYTES (4, 8, 16) from global to shared memory without waiting; zeros after the first n_byte. CACHED: 16 bytes through the L1
// cache, as fewer always are.
template <int BYTES, bool CACHED = false> __device__ __forceinline__ void rk_copy(u32 shared, const void *global, int n_byte) {
#ifdef RK_ON_CPU
    oncpu::copy(rk_shared(shared), global, BYTES, n_byte);
#else
    if (BYTES == 16 && !CACHED)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(n_byte) : "memory");
    else if (BYTES == 16)
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(n_byte) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global), "n"(BYTES), "r"(n_byte) : "memory");
#endif
}
// Copies so far form a group; wait until at most N groups of this thread are under way.
__device__ __forceinline__ void rk_copies_end() {
#ifdef RK_ON_CPU
    oncpu::current->running->copies.end_group();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N> __device__ __forceinline__ void rk_copies_left() {
#ifdef RK_ON_CPU
    oncpu::current->running->copies.leave(N);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

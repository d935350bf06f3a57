// Counters by which blocks, or their warps, know what others have made of a sum's segments.
#pragma once
#include "rk_shared.cuh"

// Add to a counter by one thread; what it was before. `ordered`: after the work of this thread and of those it waited for, and before what
// it does next.
template <bool ordered> __device__ __forceinline__ u32 rk_count(u32 *counter, u32 n) {
    u32 before;
#ifdef RK_ON_CPU
    before = *counter, *counter += n;
#else
    if (ordered) asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(n) : "memory");
    else asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(n) : "memory");
#endif
    return before;
}
// What a counter is; others may run meanwhile.
__device__ __forceinline__ u32 rk_counted(const u32 *counter) {
    u32 now;
#ifdef RK_ON_CPU
    rk_yield();
    now = *counter;
#else
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
#endif
    return now;
}

// Two counters of those that make the segments of one sum, fewer than 65,536; 0 before and after. The first one: segments that are made,
// and in the upper half those that are begun. The second one: shares of the results that are taken, and in the upper half how many of
// them have left. By one thread of each.
struct Counts {
    static constexpr u32 upper = 1u << 16;
    u32 *at;
    int parts;
    __device__ __forceinline__ Counts(u32 *at, int parts) : at(at), parts(parts) {}
    // Count a segment that is begun. Only who waits needs to know.
    __device__ __forceinline__ void begin() const { rk_count<false>(at, upper); }
    // Count a segment that is made, and tell whether all are. Who `waits` does so if all have begun, since only these are sure to end.
    __device__ __forceinline__ bool made(bool waits) const {
        u32 before = rk_count<true>(at, 1);
        bool all = before % upper == parts - 1u;
        if (all || !waits || before / upper != (u32)parts) return all;
        while (rk_counted(at) % upper != (u32)parts) {}
        return true;
    }
    __device__ __forceinline__ u32 take() const { return rk_count<false>(at + 1, 1) % upper; }
    __device__ __forceinline__ void leave() const {
        if (rk_count<false>(at + 1, upper) / upper == parts - 1u) at[0] = at[1] = 0;
    }
};

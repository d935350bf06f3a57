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
// What a counter is; others may run meanwhile. `ordered`: before what this thread does next.
template <bool ordered = true> __device__ __forceinline__ u32 rk_counted(const u32 *counter) {
    u32 now;
#ifdef RK_ON_CPU
    rk_yield();
    now = *counter;
#else
    if (ordered) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    else asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
#endif
    return now;
}

// Two counters of those that make the segments of one sum, fewer than 65,536; 0 before and after. The first one: segments that are made,
// and in the upper half those whose makers wait for the others. The second one: makers that know their share, and in the upper
// half segments that are begun. By one thread of each.
struct Counts {
    static constexpr u32 upper = 1u << 16;
    struct Share { u32 number, of; };  // of the results, which a maker adds once all segments are made; `of` 0: none
    u32 *at;
    int parts;
    __device__ __forceinline__ Counts(u32 *at, int parts) : at(at), parts(parts) {}
    // Count a segment that is begun. Only who waits needs to know.
    __device__ __forceinline__ void begin() const { rk_count<false>(at + 1, upper); }
    // Whether all segments are begun, so that it is sure that they will end.
    __device__ __forceinline__ bool all_begun() const { return rk_counted<false>(at + 1) / upper == (u32)parts; }
    // Count a segment that is made. Those that wait add equal shares; if nobody does, the last one adds all.
    __device__ __forceinline__ Share made(bool waits) const {
        u32 before = rk_count<true>(at, waits ? upper + 1 : 1), number = before / upper;
        if (before % upper == parts - 1u) return waits ? Share{number, number + 1} : Share{0, number == 0};
        if (!waits) return Share{0, 0};
        u32 now;
        do now = rk_counted(at);
        while (now % upper != (u32)parts);
        return Share{number, now / upper};
    }
    // Count one that knows its share; how many did before.
    __device__ __forceinline__ u32 know() const { return rk_count<false>(at + 1, 1) % upper; }
    // Once all know theirs, nobody reads the counters any more.
    __device__ __forceinline__ void reset(u32 known, u32 of) const {
        if (known + 1 == of) at[0] = at[1] = 0;
    }
};

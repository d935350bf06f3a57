// Segments of a sum of 16-bit products: accumulators that threads keep in memory, by blocks of their own or one after another.
#pragma once
#include "rk_cluster.cuh"
#include "rk_tma.cuh"

__device__ __forceinline__ void rk_add_to(float *d, float4 v) {
    d[0] = v.x + d[0], d[1] = v.y + d[1], d[2] = v.z + d[2], d[3] = v.w + d[3];
}

// Places for R accumulators of each of LANES threads, 16 bytes of a thread at a time: set `number` of them.
template <int R, int LANES> struct Kept {
    float *at;
    __device__ __forceinline__ Kept(float *room, u64 number) : at(room + number * (R * LANES) + threadIdx.x % LANES * 4) {}
    __device__ __forceinline__ void put(const float *d) const {
#pragma unroll
        for (int x = 0; x < R; x += 4) set(x, make_float4(d[x], d[x + 1], d[x + 2], d[x + 3]));
    }
    __device__ __forceinline__ void set(int x, float4 v) const { *(float4 *)(at + x * LANES) = v; }
    // From L2, where other blocks' are.
    __device__ __forceinline__ float4 get(int x) const { return __ldcg((const float4 *)(at + x * LANES)); }
    __device__ __forceinline__ void read(float *d) const {
#pragma unroll
        for (int x = 0; x < R; x += 4) {
            float4 v = get(x);
            d[x] = v.x, d[x + 1] = v.y, d[x + 2] = v.z, d[x + 3] = v.w;
        }
    }
    // To the accumulators, which are added to what was put.
    __device__ __forceinline__ void add(float *d) const {
#pragma unroll
        for (int x = 0; x < R; x += 4) rk_add_to(d + x, get(x));
    }
};

// The same for N accumulators from the one numbered FIRST on, in shared memory.
template <int FIRST, int N, int R> __device__ __forceinline__ void staged_add(float (&d)[R], u32 at, bool add, bool put) {
#pragma unroll
    for (int x = FIRST; x < FIRST + N; x += 2) {
        u32 place = at + ((x - FIRST) * 128 + threadIdx.x % 128 * 2) * 4;
        if (add) {
            float2 v = rk_read_pair(place);
            d[x] = v.x + d[x], d[x + 1] = v.y + d[x + 1];
        }
        if (put) rk_write_pair(place, d[x], d[x + 1]);
    }
}

// Count one of `parts` by one thread, after whose work and that of the threads it waited for; whether all are there now. `turn` is 0
// before the first and after the last.
__device__ __forceinline__ bool rk_last_of(u32 *turn, u32 parts) {
#ifdef RK_ON_CPU
    u32 before = (*turn)++;
#else
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(turn) : "memory");
#endif
    if (before == parts - 1) *turn = 0;
    return before == parts - 1;
}

// Leave the accumulators of segment `part` of `parts` of work `number`; whether they are all there, and these threads are the last.
// Then the accumulators hold the sum, left to right. `slot`: shared memory that LANES > 32 threads tell each other by.
template <int R, int LANES>
__device__ __forceinline__ bool join_parts(float *d, float *room, u32 *turns, int number, int part, int parts, u32 *slot) {
    if (parts == 1) return true;
    Kept<R, LANES>(room, (u64)number * parts + part).put(d);
    bool last;
    if (LANES == 32) {
        __syncwarp();  // the count below is of what all lanes wrote
        last = threadIdx.x % 32 == 0 && rk_last_of(turns + number, parts);
        last = __shfl_sync(~0u, last, 0);
    } else {
        rk_sync_group(threadIdx.x / 128);
        if (threadIdx.x % 128 == 0) *slot = rk_last_of(turns + number, parts);
        rk_sync_group(threadIdx.x / 128);
        last = *slot;
    }
    if (!last) return false;
    constexpr int deep = R < 32 ? 32 / R : 1;  // parts on their way
    Kept<R, LANES>(room, (u64)number * parts).read(d);
#pragma unroll 1
    for (int y0 = 1; y0 < parts; y0 += deep) {
        float4 v[deep][R / 4];
#pragma unroll
        for (int y = 0; y < deep; ++y)
#pragma unroll
            for (int x = 0; x < R / 4; ++x) v[y][x] = Kept<R, LANES>(room, (u64)number * parts + min(y0 + y, parts - 1)).get(4 * x);
#pragma unroll
        for (int y = 0; y < deep; ++y)
#pragma unroll
            for (int x = 0; x < R / 4; ++x)
                if (y0 + y < parts) rk_add_to(d + 4 * x, v[y][x]);
    }
    return true;
}

#if PARTS == 3
// The same by a cluster whose block number `part` made that segment. `room`: R numbers of 128 threads in shared memory, at the same place
// in each block. All threads of the cluster then meet again (rk_cluster_wait), before a block ends that others read.
template <int R> __device__ __forceinline__ bool join_blocks(float *d, float *room, int part) {
    float4 *mine = (float4 *)room + threadIdx.x % 128;
    rk_sync_group(threadIdx.x / 128);  // other warps may still multiply what is there
#pragma unroll
    for (int x = 0; x < R; x += 4) mine[x * 32] = make_float4(d[x], d[x + 1], d[x + 2], d[x + 3]);
    rk_cluster_arrive();
    rk_cluster_wait();
    constexpr int deep = R < 32 ? 32 / R : 1;  // parts on their way
#pragma unroll deep
    for (int y = 1; y < CLUSTER && part == 0; ++y)
#pragma unroll
        for (int x = 0; x < R; x += 4) rk_add_to(d + x, rk_cluster_load(mine + x * 32, y));
    rk_cluster_arrive();
    return part == 0;
}
#endif

// Segments of a sum of 16-bit products: accumulators that threads keep in memory, by blocks of their own or one after another.
#pragma once
#include "rk_cluster.cuh"
#include "rk_tma.cuh"
#include "gemm_counts.cuh"

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

// Leave the accumulators of segment `part` of `parts` of a warp's work `number`; whether they are all there, and this warp is the last.
// Then the accumulators hold the sum, left to right.
template <int R> __device__ __forceinline__ bool join_parts(float *d, float *room, u32 *turns, int number, int part, int parts) {
    if (parts == 1) return true;
    Kept<R, 32>(room, (u64)number * parts + part).put(d);
    __syncwarp();  // the count below is of what all lanes wrote
    bool last = threadIdx.x % 32 == 0 && rk_count<true>(turns + number, 1) == parts - 1u;
    if (last) turns[number] = 0;
    if (!__shfl_sync(~0u, last, 0)) return false;
    constexpr int deep = R < 32 ? 32 / R : 1;  // parts on their way
    Kept<R, 32>(room, (u64)number * parts).read(d);
#pragma unroll 1
    for (int y0 = 1; y0 < parts; y0 += deep) {
        float4 v[deep][R / 4];
#pragma unroll
        for (int y = 0; y < deep; ++y)
#pragma unroll
            for (int x = 0; x < R / 4; ++x) v[y][x] = Kept<R, 32>(room, (u64)number * parts + min(y0 + y, parts - 1)).get(4 * x);
#pragma unroll
        for (int y = 0; y < deep; ++y)
#pragma unroll
            for (int x = 0; x < R / 4; ++x)
                if (y0 + y < parts) rk_add_to(d + 4 * x, v[y][x]);
    }
    return true;
}

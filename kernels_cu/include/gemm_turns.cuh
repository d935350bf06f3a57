// Segments of det_gemm.cu's sums by blocks that are not in a cluster. Uses its macros.
#pragma once
#include "gemm_counts.cuh"

// How many of `count` are done together: at most `most`, a power of two.
__device__ constexpr int together_of(int count, int most) { return count % most == 0 ? most : together_of(count, most / 2); }

// The same number or address, from which others are computed again: fewer registers hold them meanwhile.
__device__ __forceinline__ int anew(int x) {
#ifndef RK_ON_CPU
    asm volatile("" : "+r"(x));
#endif
    return x;
}
template <class T> __device__ __forceinline__ T *anew(T *x) {
#ifndef RK_ON_CPU
    asm volatile("" : "+l"(x));
#endif
    return x;
}

// Wait until this warp's number `at` is `number`.
__device__ __forceinline__ void wait_for(const u32 *at, u32 number) {
    while (rk_counted(at) != number) {}
    __syncwarp();
}
// Set this warp's number `at`, after what its lanes wrote.
__device__ __forceinline__ void say(u32 *at, u32 number) {
    __syncwarp();  // the release below is of what all lanes wrote
    if (threadIdx.x % 32 == 0) {
#ifdef RK_ON_CPU
        *at = number;
#else
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(number) : "memory");
#endif
    }
}
__device__ __forceinline__ REAL from_l2(const REAL *at) {
#ifdef RK_ON_CPU
    return *at;
#else
    return __ldcg(at);
#endif
}

#define BY_SHARES (TURNS == 3)

// How blocks share a tile: `parts` of them, of which this one makes segment `rank` and each parts-th after that. With TURNS each
// block makes one segment. Its warps add it to c when those before are there; or with TURNS 2 they leave it in `made`, and
// the last warp adds all. With TURNS 3, the warps of blocks that may wait (`waits`) wait for the others' segments, and each adds
// a share of the results; if none does, the last warp adds all. `turns` is 0 before and after a launch: the number of blocks that
// have begun, then for each warp of a tile how many segments are in its results, or in `made`; with TURNS 3 its Counts.
struct Sharing {
    int parts, rank;
    u32 *turn;
    REAL *made;  // results of a segment, of all segments of the tile
    bool waits;
    __device__ __forceinline__ Sharing(int n_segment, int first, int tile, u32 *turns, REAL *segments, bool waits = true)
        : parts(TURNS ? n_segment : CLUSTER), rank(first), waits(waits) {
        turn = turns + 1 + ((u64)tile * (THREADS / 32) + threadIdx.x / 32) * (BY_SHARES ? 2 : 1);
        made = segments + (u64)tile * n_segment * (TILE_M * TILE_N) + threadIdx.x;
    }
    // Number of this block. With TURNS 1 or STREAM blocks are numbered as they begin, so that those which a block waits for have begun.
    static __device__ __forceinline__ int begin(void *room, u32 *turns) {
        if (TURNS != 1 && !STREAM) return blockIdx.x;
        rk_wait_for_earlier();
        u32 *number = (u32 *)room;
        if (threadIdx.x == 0) {
            *number = atomicAdd(turns, 1u);
            if (*number == gridDim.x - 1) *turns = 0;
        }
        __syncthreads();
        u32 mine = *number;
        __syncthreads();
        return mine;
    }
    // Wait until `number` segments are in the results of this warp.
    __device__ __forceinline__ void wait(u32 number) const { wait_for(turn, number); }
    // Say that `number` segments are in the results of this warp.
    __device__ __forceinline__ void pass(u32 number) const { say(turn, number); }
    // Leave the results of a segment.
    __device__ __forceinline__ void put(const REAL (&acc)[RM][RN], int number) const {
#pragma unroll
        for (int x = 0; x < RM * RN; ++x) made[(u64)number * (TILE_M * TILE_N) + x * THREADS] = acc[x / RN][x % RN];
    }
    // Say that the block begins its segment.
    __device__ __forceinline__ void begun() const {
        if (BY_SHARES && threadIdx.x < THREADS && threadIdx.x % 32 == 0) Counts(turn, parts).begin();
    }
    // Whether this warp may wait for others, for its first lane.
    __device__ __forceinline__ bool may_wait() const { return BY_SHARES && waits && threadIdx.x % 32 == 0 && Counts(turn, parts).all_begun(); }
    // Count the segment that this warp's lanes have left, of this block and others; the share of all results that the warp adds.
    __device__ __forceinline__ Counts::Share made_by(bool may_wait) const {
        Counts::Share mine{0, 0};
        __syncwarp();  // the count is of what all lanes wrote
        if (threadIdx.x % 32 == 0) {
            mine = Counts(turn, parts).made(may_wait);
            if (!BY_SHARES && mine.of) *turn = 0;
        }
        return {__shfl_sync(~0u, mine.number, 0), __shfl_sync(~0u, mine.of, 0)};
    }
    // Of a warp that knows its share: see Counts.
    __device__ __forceinline__ u32 know() const { return threadIdx.x % 32 == 0 ? Counts(turn, parts).know() : 0; }
    __device__ __forceinline__ void reset(u32 known, u32 of) const {
        if (threadIdx.x % 32 == 0) Counts(turn, parts).reset(known, of);
    }
    // The sums of all segments, left to right; `begin` gives what a sum begins with.
    template <class Begin> __device__ __forceinline__ void sum(REAL (&acc)[RM][RN], Begin begin) const {
        constexpr int batch = together_of(RM * RN, 8), deep = 32 / batch;  // loads on their way: results, segments
#pragma unroll
        for (int x0 = 0; x0 < RM * RN; x0 += batch) {
            REAL v[batch];
#pragma unroll
            for (int x = 0; x < batch; ++x) v[x] = begin(x0 + x, load(0, x0 + x));
#pragma unroll 1
            for (int number = 1; number < parts; number += deep) {
                REAL more[deep][batch];
#pragma unroll
                for (int y = 0; y < deep; ++y)
#pragma unroll
                    for (int x = 0; x < batch; ++x) more[y][x] = load(min(number + y, parts - 1), x0 + x);
#pragma unroll
                for (int y = 0; y < deep; ++y)
#pragma unroll
                    for (int x = 0; x < batch; ++x) v[x] = number + y < parts ? v[x] + more[y][x] : v[x];
            }
#pragma unroll
            for (int x = 0; x < batch; ++x) acc[(x0 + x) / RN][(x0 + x) % RN] = v[x];
        }
    }
    // Result x of a segment.
    __device__ __forceinline__ REAL load(int number, int x) const { return from_l2(made + (u64)number * (TILE_M * TILE_N) + x * THREADS); }
};

// Equal shares of the last tiles of det_gemm_tensor.cu, so that no multiprocessor is idle in a last round. Uses its macros.
//
// The stages of these tiles are one line, cut into as many ranges as there are workers (blocks, or clusters of them), at multiples of a
// sixteenth of a piece. A piece is a tile, or with PARTS 2 a segment of a tile. A range is at least as long as a piece, so that a cut piece
// has two workers. The first one begins with it, and passes its accumulators on: the chain goes on in the other one with the same bits.
// The other one ends with it, so that it seldom waits. Workers are numbered as they begin: one that is waited for has begun.
#pragma once
#include "gemm_parts.cuh"

struct Stream {
    static constexpr int segment = PARTS == 2 && PER < 16 ? PER : 16;  // units
    int n_unit, begin, end, at, tile;  // units of a tile; of this range; the next whole piece; the tile of this piece
    bool headed = false, tailed = false;
    __device__ __forceinline__ Stream() {}
    __device__ __forceinline__ Stream(int n_tile, int n_all, int worker, int n_worker) {
        int unit = size(n_all);
        n_unit = (n_all + unit - 1) / unit;
        begin = n_tile * n_unit * (u64)worker / n_worker, end = n_tile * n_unit * (u64)(worker + 1) / n_worker;
        at = start(begin) < begin ? stop(begin) : begin;
    }
    // Stages of a unit.
    static __device__ __forceinline__ int size(int n_all) { return PARTS == 2 ? PER / segment : (n_all + 15) / 16; }
    // Units at which the piece of a unit starts and stops.
    __device__ __forceinline__ int start(int x) const {
        int before = x / n_unit * n_unit;
        return PARTS == 2 ? before + (x - before) / segment * segment : before;
    }
    __device__ __forceinline__ int stop(int x) const {
        int before = x / n_unit * n_unit;
        return PARTS == 2 ? before + min((x - before) / segment * segment + segment, n_unit) : before + n_unit;
    }
    __device__ __forceinline__ bool next(int n_all, int &first, int &last, bool &taken, bool &given) {
        int from, to;
        if (!headed && start(end) < end) from = start(end), to = end;
        else if (at < start(end)) from = at, to = at = stop(at);
        else if (!tailed && start(begin) < begin) from = begin, to = stop(begin), tailed = true;
        else return false;
        headed = true;
        tile = from / n_unit;
        int unit = size(n_all), before = tile * n_unit;
        first = (from - before) * unit, last = min((to - before) * unit, n_all);
        taken = from > start(from), given = to < stop(from);
        return true;
    }
};

// Number of this block's worker, told to all of its threads by `slot` in shared memory. All blocks of a cluster meet.
__device__ __forceinline__ int begin_worker(u32 *turns, u32 *slot) {
    if (threadIdx.x == 0 && blockIdx.x % CLUSTER == 0) {
        u32 mine = atomicAdd(turns, 1u);
        if (mine == gridDim.x / CLUSTER - 1) *turns = 0;
        *slot = mine;
    }
#if CLUSTER > 1
    rk_cluster_arrive();
    rk_cluster_wait();
    return __float_as_int(rk_cluster_load((const float *)slot, 0));
#else
    __syncthreads();
    return *slot;
#endif
}

// The accumulators of a chain, and with PARTS 1 the sums of segments before, on their way from a warpgroup to another. `turn`: 0 before
// they are written, and after they are read.
struct Passed {
    static constexpr int sums = PARTS == 1 ? BN / 2 : 0;
    float *room;
    u32 *turn;
    __device__ __forceinline__ Passed(float *slots, u32 *turns, int number)
        : room(slots + (u64)number * ((BN / 2 + sums) * 128)), turn(turns + number) {}
    __device__ __forceinline__ Kept<BN / 2, 128> chain() const { return Kept<BN / 2, 128>(room, 0); }
    template <int R, int FIRST> __device__ __forceinline__ Kept<R, 128> sums_from() const {
        return Kept<R, 128>(room + (BN / 2 + FIRST) * 128, 0);
    }
    static __device__ __forceinline__ u32 at(u32 staged, int x) { return staged + (x * 128 + threadIdx.x % 128 * 2) * 4; }  // as staged_add
    // `added`: whether there are sums of segments.
    template <int H> __device__ __forceinline__ void put(const float (&d)[BN / 2], const float (&held)[H], u32 staged, const Kept<LEFT, 128> &kept,
                                                         bool added) const {
        chain().put(d);
        if (sums && added) {
            sums_from<HELD, 0>().put(held);
#pragma unroll 1
            for (int x = 0; x < STAGED; x += 4) {
                float2 v = rk_read_pair(at(staged, x)), w = rk_read_pair(at(staged, x + 2));
                sums_from<STAGED, HELD>().set(x, make_float4(v.x, v.y, w.x, w.y));
            }
#pragma unroll 1
            for (int x = 0; x < LEFT; x += 4) sums_from<LEFT, HELD + STAGED>().set(x, kept.get(x));
        }
        rk_sync_group(threadIdx.x / 128);  // the release below is of what all threads wrote
        if (threadIdx.x % 128 == 0) {
#ifdef RK_ON_CPU
            *turn = 1;
#else
            asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(turn) : "memory");
#endif
        }
    }
    // Nothing but zeros if they are not taken. One instruction defines them in both cases: else ptxas makes wgmma wait for each other.
    template <int H> __device__ __forceinline__ void take(float (&d)[BN / 2], float (&held)[H], u32 staged, const Kept<LEFT, 128> &kept,
                                                          bool taken, bool added) const {
        if (taken) {
            if (threadIdx.x % 128 == 0) {
#ifdef RK_ON_CPU
                while (*turn != 1) rk_yield();
#else
                u32 there;
                do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(turn) : "memory");
                while (there != 1);
#endif
                *turn = 0;
            }
            rk_sync_group(threadIdx.x / 128);
            if (sums && added) {
                sums_from<HELD, 0>().read(held);
#pragma unroll 1
                for (int x = 0; x < STAGED; x += 4) {
                    float4 v = sums_from<STAGED, HELD>().get(x);
                    rk_write_pair(at(staged, x), v.x, v.y);
                    rk_write_pair(at(staged, x + 2), v.z, v.w);
                }
#pragma unroll 1
                for (int x = 0; x < LEFT; x += 4) kept.set(x, sums_from<LEFT, HELD + STAGED>().get(x));
            }
        }
#pragma unroll
        for (int x = 0; x < BN / 2; x += 4) load_if(taken, d + x, chain().at + x * 128);
    }
    static __device__ __forceinline__ void load_if(bool wanted, float *d, const float *from) {
#ifdef RK_ON_CPU
        for (int x = 0; x < 4; ++x) d[x] = wanted ? from[x] : 0.0f;
#else
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %4, 0;\nmov.f32 %0, 0f00000000;\nmov.f32 %1, 0f00000000;\nmov.f32 %2, 0f00000000;\n"
                     "mov.f32 %3, 0f00000000;\n@p ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%5];\n}"
                     : "=&f"(d[0]), "=&f"(d[1]), "=&f"(d[2]), "=&f"(d[3]) : "r"((int)wanted), "l"(from) : "memory");
#endif
    }
};

// Results of segments that several blocks of det_gemm_tensor.cu have made, added left to right. Uses its macros.
#pragma once
#include "gemm_parts.cuh"

// Results x to x + 3 of a thread, of the 64 x BN part of a tile that begins at (i, j).
__device__ __forceinline__ void write_four(float4 v, int x, RESULT *out, int i, int j, int end_i, int n_j, int ld) {
    int lane = threadIdx.x % 32, row = i + threadIdx.x % 128 / 32 * 16 + lane / 4, column = j + 2 * x + lane % 4 * 2;
    const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        int r = row + e / 2 * 8, c = column + e % 2;
        if (r >= end_i || c >= n_j) continue;
        RESULT *at = out + (OUT_T ? (u64)c * ld + r : (u64)r * ld + c);
        if (WIDE) *(float *)at = values[e];
        else *(u16 *)at = (u16)rk_pack16(values[e], values[e]);
    }
}

#if PARTS == 2
#define BY_SHARES (BN > 32)  // else the last block adds all results, which are few
// Counters of a warpgroup's part of a tile.
struct PartCounts : Counts {
    int own;
    __device__ __forceinline__ PartCounts(u32 *turns, int tile, int group, int n_all)
        : Counts(turns + 2 * (tile * NC + group), (n_all + PER - 1) / PER), own(tile * NC + group) {}
    // Count a segment that is begun, for the parts of all warpgroups, by one warp.
    __device__ __forceinline__ void begin_all() const {
        int group = threadIdx.x % 32;
        if (BY_SHARES && group < NC) Counts(at + 2 * group, parts).begin();
    }
};

// Add the segments of results x0 to x1 of a thread, and pass each four on. DEEP segments of SIDE fours are on their way at a time.
template <int R, int DEEP, int SIDE, class Write>
__device__ __forceinline__ void add_segments(float *room, int parts, int x0, int x1, Write write) {
#pragma unroll 1
    for (int x = x0; x < x1; x += 4 * SIDE) {
        float4 sum[SIDE], v[DEEP][SIDE];
#pragma unroll 1
        for (int y0 = 0; y0 < parts; y0 += DEEP) {
#pragma unroll
            for (int y = 0; y < DEEP; ++y)
#pragma unroll
                for (int c = 0; c < SIDE; ++c) v[y][c] = Kept<R, 128>(room, min(y0 + y, parts - 1)).get(min(x + 4 * c, x1 - 4));
#pragma unroll
            for (int y = 0; y < DEEP; ++y)
#pragma unroll
                for (int c = 0; c < SIDE; ++c)
                    if (y0 + y == 0) sum[c] = v[y][c];
                    else if (y0 + y < parts) rk_add_to((float *)&sum[c], v[y][c]);
        }
#pragma unroll
        for (int c = 0; c < SIDE; ++c)
            if (x + 4 * c < x1) write(x + 4 * c, sum[c]);
    }
}

// Leave the results of segment `part`, and add a share of those of all segments once all are there: by blocks that have nothing else to do
// and so may wait, or by the last one of the tile. `slot`: shared memory of the warpgroup.
template <int R, class Write>
__device__ __forceinline__ void join_segments(const float (&d)[R], float *room, PartCounts counts, int part, bool waits, u32 *slot, Write write) {
    int id = threadIdx.x / 128, x0 = 0, x1 = R;
    bool first = threadIdx.x % 128 == 0;
    u32 known = 0, of = 1;
    room += (u64)counts.own * counts.parts * (R * 128);
    Kept<R, 128>(room, part).put(d);
    waits = BY_SHARES && first && waits && counts.all_begun();
    rk_sync_group(id);  // the count is of what all threads wrote
    if (first) {
        Counts::Share share = counts.made(waits);
        *slot = share.number + Counts::upper * share.of;
    }
    rk_sync_group(id);
    if (*slot < Counts::upper) return;
    if (BY_SHARES) {
        of = *slot / Counts::upper;
        if (first) known = counts.know();  // needed at the end only
        int share = (R / 4 + of - 1) / of * 4;
        x0 = min(*slot % Counts::upper * share, (u32)R), x1 = min(x0 + share, R);
    }
    constexpr bool alone = BLOCKS == 1 && NC < 3, wide = alone && R > 16 && R <= 80;  // as registers allow
    constexpr int deep = BLOCKS > 1 || R > 112 ? 4 : 8, side = alone || BLOCKS == 2 ? 2 : 1;
    if (wide && counts.parts <= 4) add_segments<R, 4, wide ? 4 : 1>(room, counts.parts, x0, x1, write);
    else add_segments<R, deep, side>(room, counts.parts, x0, x1, write);
    if (first) counts.reset(known, of);
}
#endif

#if PARTS == 3
// The same by JOINED blocks of a cluster, each of which has made one segment and adds a share. `room`: shared memory for the results of a
// block, at the same place in each. All threads of the cluster then meet again (rk_cluster_wait), before a block ends that others read.
template <int R, class Write> __device__ __forceinline__ void join_blocks(const float (&d)[R], float *room, int part, Write write) {
    constexpr int side = JOINED <= 4 ? 4 : 2, step = 4 * JOINED;
    float4 *mine = (float4 *)room + (threadIdx.x / 128 - 1) * (R * 32) + threadIdx.x % 128;
    rk_sync_group(NC > 1 ? NC + 1 : 1, NC * 128);  // other warps may still multiply what is there
#pragma unroll
    for (int x = 0; x < R; x += 4) mine[x * 32] = make_float4(d[x], d[x + 1], d[x + 2], d[x + 3]);
    rk_cluster_arrive();
    rk_cluster_wait();
    int rank = blockIdx.x % SHARE;
#pragma unroll 1
    for (int x = 4 * part; x < R; x += step * side) {
        float4 v[side][JOINED];
#pragma unroll
        for (int c = 0; c < side; ++c)
#pragma unroll
            for (int y = 0; y < JOINED; ++y) v[c][y] = rk_cluster_load(mine + min(x + step * c, R - 4) * 32, y * SHARE + rank);
#pragma unroll
        for (int c = 0; c < side; ++c) {
#pragma unroll
            for (int y = 1; y < JOINED; ++y) rk_add_to((float *)&v[c][0], v[c][y]);
            if (x + step * c < R) write(x + step * c, v[c][0]);
        }
    }
    rk_cluster_arrive();
}
#endif

// What warps of det_gemm_mma.cu copy into a stage and read from it, where factors may begin anywhere (gemm_thin.cuh, gemm_short.cuh).
#pragma once
#include "gemm_loose.cuh"
#include "gemm_warps.cuh"
#include "rk_early.cuh"

#define THROUGH (P_VEC == 1 || Q_VEC == 1)   // some words go through registers
#define BATCH 8                              // units that do so together
static_assert(BI <= 64 && BJ <= 64, "macros");

// A warp's copies of a factor for a stage, VEC elements each: 8, 4 or 2 asynchronously, 1 through registers, 8 at a time; of WARPS
// warps, number `me` takes every WARPS-th row. Lines that do not exist are left as they are: what comes of them is not written, and
// many blocks that ask for one line instead wait for each other.
template <int LINES, int MN, int VEC, int WARPS = 1> struct Feed {
    static constexpr int unit = VEC == 1 ? 8 : VEC, width = (MN ? LINES : BK) / unit, rows = MN ? BK : LINES;
    static constexpr int lanes = width < 32 ? width : 32, each = 32 / lanes, turns = rows / each;  // rows a turn of a warp
    static constexpr int share = WARPS < turns ? WARPS : turns, step = each * share, count = rows / step;
    static_assert(width <= 32 && rows % step == 0, "a row a turn, or more");
    const u16 *m, *from;
    u64 stride;
    int row, at, n_line, line0;
    bool idle;
    int first;  // bytes that exist of a unit, of all its rows

    __device__ __forceinline__ Feed(const u16 *m, int ld, int line0, int n_line, int r, int me = 0)
        : m(m), stride(ld), n_line(n_line), line0(line0), idle(me >= share) {
        int lane = threadIdx.x % 32;
        row = me * each + lane / lanes, at = lane % lanes * unit;
        int left = n_line - line0 - at;
        first = MN ? 2 * max(0, min(left, unit)) : 2 * unit;
        from = MN ? m + (u64)(r + row) * ld + (left > 0 ? line0 + at : 0) : m + r + at;
    }
    __device__ __forceinline__ void skip(int r) { from += MN ? r * stride : r; }
    // Address of turn u, and the bytes of it that exist if `left` terms of the sum are there.
    __device__ __forceinline__ const u16 *place_of(int u) const { return from + (u64)((MN ? 0 : line0 + row) + u * step) * stride; }
    __device__ __forceinline__ int bytes(int u, int left) const {
        return MN ? (row + u * step < left ? first : 0) : 2 * max(0, min(left - at, unit));
    }
    __device__ __forceinline__ bool exists(int u) const { return MN || line0 + row + u * step < n_line; }
    __device__ __forceinline__ u32 to(u32 stage, int u) const {
        int r = row + u * step;
        return stage + (MN ? place<LINES, MN>(at, r) : place<LINES, MN>(r, at)) + at % 8 * 2;
    }
    template <bool WHOLE> __device__ __forceinline__ void ask(u32 stage, int left) const {
        const u16 *x = place_of(0);
#pragma unroll
        for (int u = 0; u < count; ++u, x += step * stride) {
            int n = WHOLE ? first : bytes(u, left);
            if (exists(u)) rk_copy<2 * unit>(to(stage, u), n ? x : m, n);
        }
    }
    static constexpr int batch = count < BATCH ? count : BATCH;
    static_assert(count % batch == 0, "equal batches");
    template <bool WHOLE> __device__ __forceinline__ int there(int u, int left) const {
        return !exists(u) ? 0 : WHOLE ? first : bytes(u, left);
    }
    template <bool WHOLE> __device__ __forceinline__ void read(Loose (&v)[batch], int u0, int left) const {
#pragma unroll
        for (int u = 0; u < batch; ++u) v[u].read(place_of(u0 + u), there<WHOLE>(u0 + u, left));
    }
    // What MN has beyond its lines is not used, so that it may be anything.
    template <bool WHOLE> __device__ __forceinline__ void write(const Loose (&v)[batch], u32 stage, int u0, int left) const {
#pragma unroll
        for (int u = 0; u < batch; ++u)
            rk_write_line(to(stage, u0 + u), v[u].tight(place_of(u0 + u), MN || WHOLE ? 16 : bytes(u0 + u, left)));
    }
    static constexpr bool taken = VEC > 1 || count <= BATCH;  // whether the two halves below can copy a stage
    // The two halves of a copy through registers, of at most BATCH units; others are complete with the first.
    template <bool WHOLE = false> __device__ __forceinline__ void take(Loose (&v)[batch], u32 stage, int left) const {
        static_assert(taken, "units of a warp");
        if (idle) return;
        if constexpr (VEC > 1) ask<WHOLE>(stage, left);
        else read<WHOLE>(v, 0, left);
    }
    template <bool WHOLE = false> __device__ __forceinline__ void leave(const Loose (&v)[batch], u32 stage, int left) const {
        if constexpr (VEC == 1)
            if (!idle) write<WHOLE>(v, stage, 0, left);
    }
    template <bool WHOLE> __device__ __forceinline__ void every(u32 stage, int left) const {
        if (idle) return;
        if constexpr (VEC > 1) ask<WHOLE>(stage, left);
        else
#pragma unroll 1
            for (int u = 0; u < count; u += batch) {
                Loose v[batch];
                read<WHOLE>(v, u, left);
                write<WHOLE>(v, stage, u, left);
            }
    }
};

#define STEPS (BK / 16)
// Operands of a stage's steps: of MI x 16 lines of p and MJ x 8 of q.
struct Steps {
    u32 a[STEPS][MI][4], b[STEPS][MJ][2];
    __device__ __forceinline__ void read(u32 stage, int wi, int wj) {
#pragma unroll
        for (int e = 0; e < STEPS; ++e)
#pragma unroll
            for (int x = 0; x < MI; ++x) fragment<BI, P_MN>(a[e][x], stage, wi + 16 * x, 16 * e);
        stage += BI * BK * 2;
        u32 v[4];
        if (MJ == 1) {  // 8 lines of two steps at a time
            int lane = threadIdx.x % 32, row = lane % 8, far = lane / 8 * 8;
#pragma unroll
            for (int e = 0; e < STEPS; e += 2) {
                rk_load_matrices<Q_MN>(v, stage + place<BJ, Q_MN>(wj + (Q_MN ? 0 : row), 16 * e + far + (Q_MN ? row : 0)));
#pragma unroll
                for (int y = 0; y < 4; ++y) b[e + y / 2][0][y % 2] = v[y];
            }
        } else
#pragma unroll
            for (int e = 0; e < STEPS; ++e)
#pragma unroll
                for (int x = 0; x < MJ / 2; ++x) {
                    fragment<BJ, Q_MN>(v, stage, wj + x * 16, e * 16);
#pragma unroll
                    for (int y = 0; y < 4; ++y) b[e][MJ == 1 ? 0 : x * 2 + y % 2][y / 2] = v[y];
                }
    }
    template <int FIRST, int LAST> __device__ __forceinline__ void multiply(float (&d)[MI][MJ][4]) {
#pragma unroll
        for (int e = FIRST; e < LAST; ++e)
#pragma unroll
            for (int x = 0; x < MI; ++x)
#pragma unroll
                for (int y = 0; y < MJ; ++y) rk_mma(d[x][y], a[e][x], b[e][y][0], b[e][y][1]);
    }
};

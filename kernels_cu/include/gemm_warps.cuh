// Products of 16-bit floats by mma.sync: a warp's part of a block's tile, and loads of factors into
// shared memory. A block makes a BI x BJ tile with WI x WJ warps; 64 of the sum a stage, ST stages.
#pragma once
#include "rk_mma.cuh"

#ifndef BI
#define BI 128
#endif
#ifndef BJ
#define BJ 128
#endif
#ifndef WI
#define WI 2
#endif
#ifndef WJ
#define WJ 4
#endif
#ifndef ST
#define ST 3
#endif
#ifndef P_MN
#define P_MN 0
#endif
#ifndef Q_MN
#define Q_MN 0
#endif
#define BK 64
#define N_THREAD (32 * WI * WJ)
#define MI (BI / WI / 16)  // fragments of a warp
#define MJ (BJ / WJ / 8)
#define STAGE ((BI + BJ) * BK * 2)

// Address in a stage of 8 neighbouring elements at (line, depth). Rows of ROW bytes; 16-byte units change
// places so that 8 rows at the same unit lie in different banks.
template <int LINES, int MN> __device__ __forceinline__ u32 place(int line, int depth) {
    constexpr int row_bytes = MN ? (LINES < 64 ? LINES : 64) * 2 : 128, units = row_bytes / 16;
    int slab = MN ? line / 64 * (BK * 128) : 0, row = MN ? depth : line, unit = (MN ? line % 64 : depth) / 8;
    return slab + row * row_bytes + (unit ^ (row * row_bytes / 128 & (units - 1))) * 16;
}

template <int LINES, int MN>
__device__ __forceinline__ void fetch(u32 to, const u16 *m, int ld, int line0, int n_line, int r0, int n_r) {
    constexpr int across = (MN ? LINES : BK) / 8, n = LINES * BK / 8;
#pragma unroll
    for (int u = 0; u < (n + N_THREAD - 1) / N_THREAD; ++u) {
        int e = threadIdx.x + u * N_THREAD, row = e / across, unit = e % across * 8;
        int line = MN ? unit : row, depth = MN ? row : unit;
        if (n % N_THREAD && e >= n) break;
        bool inside = line0 + line < n_line && r0 + depth < n_r;
        int left = MN ? n_line - line0 - line : n_r - r0 - depth;  // elements of the row
        u64 at = MN ? (u64)(r0 + depth) * ld + line0 + line : (u64)(line0 + line) * ld + r0 + depth;
        rk_copy<16>(to + place<LINES, MN>(line, depth), inside ? m + at : m, inside ? 2 * min(left, 8) : 0);
    }
}

// 16 lines x 16 depths: lines 0-7 and 8-15 of depths 0-7, then of depths 8-15.
template <int LINES, int MN> __device__ __forceinline__ void fragment(u32 (&v)[4], u32 stage, int line, int depth) {
    int lane = threadIdx.x % 32, row = lane % 8, second = lane / 8 % 2 * 8, third = lane / 16 * 8;
    if (MN) rk_load_matrices<true>(v, stage + place<LINES, MN>(line + second, depth + third + row));
    else rk_load_matrices<false>(v, stage + place<LINES, MN>(line + second + row, depth + third));
}

// Continue the chains of a tile over n_step stages, of which the first ST - 1 are requested, a group of copies each;
// `fetch(slot, k)` requests stage k. wi, wj: first line of the warp.
template <class Fetch>
__device__ __forceinline__ void run_stages(float (&d)[MI][MJ][4], u32 shared, int wi, int wj, int n_step, Fetch fetch) {
    for (int k = 0, s = 0; k < n_step; ++k, s = s + 1 == ST ? 0 : s + 1) {
        rk_copies_left<ST - 2>();
        __syncthreads();
        u32 at_p = shared + s * STAGE, at_q = at_p + BI * BK * 2;
#pragma unroll
        for (int e = 0; e < BK; e += 16) {
            u32 a[MI][4], b[MJ / 2][4];
#pragma unroll
            for (int x = 0; x < MI; ++x) fragment<BI, P_MN>(a[x], at_p, wi + 16 * x, e);
#pragma unroll
            for (int x = 0; x < MJ / 2; ++x) fragment<BJ, Q_MN>(b[x], at_q, wj + 16 * x, e);
#pragma unroll
            for (int x = 0; x < MI; ++x)
#pragma unroll
                for (int y = 0; y < MJ; ++y) rk_mma(d[x][y], a[x], b[y / 2][y % 2], b[y / 2][2 + y % 2]);
        }
        int next = k + ST - 1;
        if (next < n_step) fetch(s == 0 ? ST - 1 : s - 1, next);
        rk_copies_end();
    }
}

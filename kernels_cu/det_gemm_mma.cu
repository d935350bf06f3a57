// Product of 16-bit floats by mma.sync, batch-invariant: o = p q^T. For architectures without wgmma, and for
// small batches: a step of the chain takes less time here, and tiles may be small.
//
//   o_ij = [total_ij +] chain_ij,  chain_ij = [partial_ij +] sum over r of p_ir q_jr
//
//   p (n_i, n_r), or with P_MN (n_r, n_i); q (n_j, n_r), or with Q_MN (n_r, n_j)    u16 (bits); lines begin
//       every ld_p, ld_q elements
//   o (n_i, ld), or with OUT_T (n_j, ld)      RESULT: u16 (bits of the factors' type) or float
//   partial, total: float32, laid out as o    with FROM, ADD
//
// Sum: r in [0, n_r), in steps of 16 ascending, one accumulator, as det_gemm_tensor.cu: the same bits.
//
// A block makes a BI x BJ tile with WI x WJ warps; 64 of the sum a stage, ST stages in shared memory, filled by
// asynchronous copies of 16 bytes. Blocks in groups of `group` lines of tiles along i.
//
// Macros: BI, BJ, WI, WJ (BI % (16 WI) == BJ % (16 WJ) == 0), ST, P_MN, Q_MN, OUT_T, RESULT, FROM, ADD, HALF.
// Alignment: p, q and their lines 16 bytes.
// mirror: rpukit/gemm/_mirror/tensor.py::det_gemm_mma
// op: rpukit.gemm.tensor.det_gemm_mma
// bits: arch-exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: P_MN=1 OUT_T=1
// check: Q_MN=1
// check: P_MN=1 Q_MN=1 RESULT=float FROM=1 ADD=1
// check: BI=32 BJ=16 WI=2 WJ=1 ST=12 P_MN=1 OUT_T=1
// check: BI=64 BJ=64 WI=4 WJ=2 ST=5 OUT_T=1 HALF=1
// source: docs/semantics/gemm.md; PTX ISA 7.0, warp-level matrix instructions.
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
#ifndef OUT_T
#define OUT_T 0
#endif
#ifndef RESULT
#define RESULT u16
#endif
#ifndef FROM
#define FROM 0
#endif
#ifndef ADD
#define ADD 0
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

extern "C" __global__ void __launch_bounds__(N_THREAD)
det_gemm_mma(int n_i, int n_j, int n_r, int ld_p, int ld_q, int ld, int group, const u16 *p, const u16 *q, const float *partial,
             const float *total, RESULT *out) {
    extern __shared__ __align__(1024) unsigned char raw[];
    u32 shared = rk_shared_address(raw);
    int tiles_i = (n_i + BI - 1) / BI, tiles_j = (n_j + BJ - 1) / BJ, whole = group * tiles_j;
    int first = blockIdx.x / whole * group, lines = min(group, tiles_i - first), rest = blockIdx.x % whole;
    int i0 = (first + rest % lines) * BI, j0 = rest / lines * BJ;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wi = warp % WI * (BI / WI), wj = warp / WI * (BJ / WJ);
    float d[MI][MJ][4];
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x) {
        int a = x / (4 * MJ), b = x / 4 % MJ;
        int i = i0 + wi + 16 * a + x / 2 % 2 * 8 + lane / 4, j = j0 + wj + 8 * b + lane % 4 * 2 + x % 2;
        d[a][b][x % 4] = FROM && i < n_i && j < n_j ? partial[OUT_T ? (u64)j * ld + i : (u64)i * ld + j] : 0.0f;
    }
    int n_step = (n_r + BK - 1) / BK;
#pragma unroll
    for (int s = 0; s < ST - 1; ++s) {
        if (s < n_step) {
            fetch<BI, P_MN>(shared + s * STAGE, p, ld_p, i0, n_i, s * BK, n_r);
            fetch<BJ, Q_MN>(shared + s * STAGE + BI * BK * 2, q, ld_q, j0, n_j, s * BK, n_r);
        }
        rk_copies_end();
    }
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
        int next = k + ST - 1, t = s == 0 ? ST - 1 : s - 1;
        if (next < n_step) {
            fetch<BI, P_MN>(shared + t * STAGE, p, ld_p, i0, n_i, next * BK, n_r);
            fetch<BJ, Q_MN>(shared + t * STAGE + BI * BK * 2, q, ld_q, j0, n_j, next * BK, n_r);
        }
        rk_copies_end();
    }
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x) {
        int a = x / (4 * MJ), b = x / 4 % MJ;
        int i = i0 + wi + 16 * a + x / 2 % 2 * 8 + lane / 4, j = j0 + wj + 8 * b + lane % 4 * 2 + x % 2;
        u64 at = OUT_T ? (u64)j * ld + i : (u64)i * ld + j;
        if (i < n_i && j < n_j) {
            float v = ADD ? total[at] + d[a][b][x % 4] : d[a][b][x % 4];
            if (sizeof(RESULT) == 4) *(float *)(out + at) = v;
            else *(u16 *)(out + at) = (u16)rk_pack16(v, v);
        }
    }
}

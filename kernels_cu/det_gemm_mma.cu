// Batch-invariant product of 16-bit floats by mma.sync, for small batches and GPUs without wgmma: o = p q^T.
// In small batches a step of the chain takes less time here than in det_gemm_tensor.cu, and tiles may be smaller.
//
//   o_ij = [total_ij +] chain_ij,  chain_ij = [partial_ij +] sum over r of p_ir q_jr
//
//   p (n_i, n_r), or with P_MN (n_r, n_i); q (n_j, n_r), or with Q_MN (n_r, n_j)    u16 (bits); lines begin
//       every ld_p, ld_q elements
//   o (n_i, ld), or with OUT_T (n_j, ld)      RESULT: u16 (bits of the factors' type) or float
//   partial, total: float32, laid out as o    with FROM, ADD
//
// Sum: r in [0, n_r), in steps of 16 ascending, one accumulator, as det_gemm_tensor.cu: the same bits. With COPIERS it
// restarts at every multiple of SEGMENT, and the results of segments are added left to right; else n_r lies in a segment.
//
// A block makes a BI x BJ tile with WI x WJ warps; 64 of the sum a stage, ST stages in shared memory, filled by
// asynchronous copies of 16 bytes, or as P_VEC and Q_VEC say. Blocks in groups of `group` lines of tiles along i. With APART
// a block makes one segment and leaves it in `room`, and a warp that ends the last one of its results adds all. With CLUSTER the blocks
// of a cluster make a segment each, and add shares of all from each other's shared memory.
//
// Macros: BI, BJ, WI, WJ (BI % (16 WI) == BJ % (16 WJ) == 0; with COPIERS, BJ may be 8 WJ), ST, P_MN, Q_MN, OUT_T, RESULT,
//         FROM, ADD, HALF, COPIERS (warps that only copy: gemm_thin.cuh; then P_VEC, Q_VEC: elements a copy, 8, 4, 2 or 1; and
//         SEGMENT: terms, a multiple of 64 ST), SHORT (blocks a multiprocessor; all of the sum at once: gemm_short.cuh, with P_VEC and
//         Q_VEC; no COPIERS), APART (needs COPIERS, no FROM; `turns`: 0 for each warp of a tile), CLUSTER (2 to 8: the segments of a sum; likewise).
// Alignment: p, q and their lines 16 bytes, or those of P_VEC, Q_VEC elements.
// mirror: rpukit/gemm/_mirror/tensor.py::det_gemm_mma
// op: rpukit.gemm.tensor.det_gemm_mma
// bits: arch-exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: P_MN=1 OUT_T=1
// check: Q_MN=1
// check: P_MN=1 Q_MN=1 RESULT=float FROM=1 ADD=1
// check: BI=32 BJ=16 WI=2 WJ=1 ST=12 P_MN=1 OUT_T=1
// check: BI=64 BJ=64 WI=4 WJ=2 ST=5 OUT_T=1 HALF=1
// check: BI=16 BJ=8 WI=1 WJ=1 ST=16 COPIERS=2 OUT_T=1
// check: BI=16 BJ=8 WI=1 WJ=1 ST=16 COPIERS=8 OUT_T=1 P_MN=1 Q_MN=1 P_VEC=1 Q_VEC=1
// check: BI=32 BJ=16 WI=2 WJ=1 ST=16 COPIERS=4 P_VEC=2 P_MN=1 FROM=1 ADD=1 RESULT=float
// check: BI=64 BJ=16 WI=4 WJ=1 ST=16 COPIERS=8 Q_VEC=1 Q_MN=1 P_VEC=1 HALF=1
// check: BI=16 BJ=8 WI=1 WJ=1 ST=16 COPIERS=2 OUT_T=1 APART=1
// check: BI=64 BJ=16 WI=4 WJ=1 ST=16 COPIERS=8 OUT_T=1 P_MN=1 P_VEC=2 Q_VEC=2 Q_MN=1 APART=1
// check: BI=16 BJ=8 WI=1 WJ=1 ST=16 COPIERS=2 OUT_T=1 CLUSTER=8
// check: BI=64 BJ=64 WI=4 WJ=2 ST=8 COPIERS=4 OUT_T=1 P_MN=1 P_VEC=2 Q_VEC=4 Q_MN=1 CLUSTER=3
// check: BI=64 BJ=32 WI=4 WJ=2 SHORT=3 OUT_T=1 P_VEC=1 Q_VEC=2
// check: BI=64 BJ=8 WI=4 WJ=1 SHORT=4 OUT_T=1 P_MN=1 P_VEC=2 Q_MN=1 Q_VEC=1
// check: BI=64 BJ=64 WI=4 WJ=2 SHORT=2 OUT_T=1 P_MN=1 P_VEC=2 Q_VEC=1 HALF=1
// source: docs/semantics/gemm.md; PTX ISA 7.0, warp-level matrix instructions.
#include "gemm_warps.cuh"

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
#ifndef COPIERS
#define COPIERS 0
#endif
#ifndef P_VEC
#define P_VEC 8
#endif
#ifndef Q_VEC
#define Q_VEC 8
#endif
#ifndef SHORT
#define SHORT 0
#endif
#ifndef APART
#define APART 0
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef SEGMENT
#define SEGMENT 4096
#endif
#define SPLIT (APART || CLUSTER > 1)  // a block makes one segment
static_assert((!SPLIT || (COPIERS && !FROM)) && (!APART || CLUSTER == 1) && (!SHORT || !COPIERS), "macros");
#include "rk_cluster.cuh"
#if COPIERS || SHORT
#include "gemm_feed.cuh"
#endif
#if COPIERS
#include "gemm_parts.cuh"
#include "gemm_thin.cuh"
#elif SHORT
#include "gemm_short.cuh"
#endif

extern "C" __global__ void RK_CLUSTER(CLUSTER) __launch_bounds__(N_THREAD + 32 * COPIERS, SHORT ? SHORT : 1)
det_gemm_mma(int n_i, int n_j, int n_r, int ld_p, int ld_q, int ld, int group, const u16 *p, const u16 *q, const float *partial,
             const float *total, RESULT *out, u32 *turns, float *room) {
    extern __shared__ __align__(1024) unsigned char raw[];
    u32 shared = rk_shared_address(raw);
    int tiles_i = (n_i + BI - 1) / BI, tiles_j = (n_j + BJ - 1) / BJ, whole = group * tiles_j;
    int tile = APART ? blockIdx.x % (tiles_i * tiles_j) : blockIdx.x / CLUSTER;
    int part = APART ? blockIdx.x / (tiles_i * tiles_j) : blockIdx.x % CLUSTER;
    int first = tile / whole * group, lines = min(group, tiles_i - first), rest = tile % whole;
    int i0 = (first + rest % lines) * BI, j0 = rest / lines * BJ;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wi = warp % WI * (BI / WI), wj = warp / WI * (BJ / WJ);
    float d[MI][MJ][4];
#if COPIERS || SHORT
    rk_wait_for_earlier();
    rk_let_later_begin();
#endif
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x) {
        int a = x / (4 * MJ), b = x / 4 % MJ;
        int i = i0 + wi + 16 * a + x / 2 % 2 * 8 + lane / 4, j = j0 + wj + 8 * b + lane % 4 * 2 + x % 2;
        d[a][b][x % 4] = FROM && i < n_i && j < n_j ? partial[OUT_T ? (u64)j * ld + i : (u64)i * ld + j] : 0.0f;
    }
#if COPIERS
    int start = part * SEGMENT;
    const u16 *p_part = p + (P_MN ? (u64)start * ld_p : start), *q_part = q + (Q_MN ? (u64)start * ld_q : start);
    int n_mine = SPLIT ? min(n_r - start, SEGMENT) : n_r;
    bool makes = thin_results(d, shared, p_part, q_part, ld_p, ld_q, i0, j0, n_i, n_j, n_mine, wi, wj);
#if CLUSTER > 1
    join_shares(&d[0][0][0], (float4 *)(raw + ST * (STAGE + 16)), makes, part);
#endif
    if (!makes) return;
    if (APART && !join_parts<MI * MJ * 4>(&d[0][0][0], room, turns, tile * (WI * WJ) + warp, part, (n_r - 1) / SEGMENT + 1)) return;
#elif SHORT
    short_results(d, shared, p, q, ld_p, ld_q, i0, j0, n_i, n_j, n_r, wi, wj);
#else
    int n_step = (n_r + BK - 1) / BK;
    auto ask = [&](int slot, int k) {
        fetch<BI, P_MN>(shared + slot * STAGE, p, ld_p, i0, n_i, k * BK, n_r);
        fetch<BJ, Q_MN>(shared + slot * STAGE + BI * BK * 2, q, ld_q, j0, n_j, k * BK, n_r);
    };
#pragma unroll
    for (int s = 0; s < ST - 1; ++s) {
        if (s < n_step) ask(s, s);
        rk_copies_end();
    }
    run_stages(d, shared, wi, wj, n_step, ask);
#endif
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x) {
        int a = x / (4 * MJ), b = x / 4 % MJ;
        int i = i0 + wi + 16 * a + x / 2 % 2 * 8 + lane / 4, j = j0 + wj + 8 * b + lane % 4 * 2 + x % 2;
        u64 at = OUT_T ? (u64)j * ld + i : (u64)i * ld + j;
        if (i < n_i && j < n_j && (CLUSTER == 1 || x / 4 % CLUSTER == part)) {
            float v = ADD ? total[at] + d[a][b][x % 4] : d[a][b][x % 4];
            if (sizeof(RESULT) == 4) *(float *)(out + at) = v;
            else *(u16 *)(out + at) = (u16)rk_pack16(v, v);
        }
    }
}

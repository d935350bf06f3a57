// Batch-invariant product c = op(a) op(b), op being the transpose or nothing.
//
//   a (m, k), or with TRANS_A (k, m); b (k, n), or with TRANS_B (n, k); c (m, n)    REAL, C order
//
// One accumulator a result: k ascending, one fma each, from +0; restarted at every multiple of
// RK_SEGMENT, segment results added left to right. So a result depends on its row of a and its column of
// b alone, whatever the batch, the tile or the launch.
//
// Grid: (blocks of TILE_N columns, blocks of TILE_M rows); a thread owns RM x RN results, TILE_K of the sum
// at a time in shared memory.
//
// Macros: REAL, TRANS_A, TRANS_B, TILE_M, TILE_N, TILE_K, RM, RN.
// mirror: rpukit/gemm/_mirror/real.py::det_gemm
// op: rpukit.gemm.det_gemm
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: TRANS_A=1
// check: TRANS_B=1
// check: REAL=double TILE_M=32 TILE_N=32 RM=2 RN=2
// source: docs/semantics.md, section 6.
#include "rk_types.cuh"
#include "rk_chain.cuh"

#ifndef REAL
#define REAL float
#endif
#ifndef TRANS_A
#define TRANS_A 0
#endif
#ifndef TRANS_B
#define TRANS_B 0
#endif
#ifndef TILE_M
#define TILE_M 64
#endif
#ifndef TILE_N
#define TILE_N 64
#endif
#ifndef TILE_K
#define TILE_K 16
#endif
#ifndef RM
#define RM 4
#endif
#ifndef RN
#define RN 4
#endif
#define THREADS ((TILE_M / RM) * (TILE_N / RN))

__device__ __forceinline__ float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fma_rn(double a, double b, double c) { return __fma_rn(a, b, c); }

extern "C" __global__ void __launch_bounds__(THREADS)
det_gemm(int m, int n, int k, const REAL *a, const REAL *b, REAL *c) {
    __shared__ REAL as[TILE_K][TILE_M + 1], bs[TILE_K][TILE_N + 1];
    int row0 = blockIdx.y * TILE_M, col0 = blockIdx.x * TILE_N, t = threadIdx.x;
    int tn = t % (TILE_N / RN), tm = t / (TILE_N / RN);
    REAL acc[RM][RN], total[RM][RN];
    for (int r = 0; r < RM; ++r)
        for (int q = 0; q < RN; ++q) acc[r][q] = total[r][q] = 0;
    for (int k0 = 0; k0 < k; k0 += TILE_K) {
        __syncthreads();
        for (int e = t; e < TILE_K * TILE_M; e += THREADS) {
            int i = TRANS_A ? e % TILE_M : e / TILE_K, p = TRANS_A ? e / TILE_M : e % TILE_K;
            bool inside = row0 + i < m && k0 + p < k;
            u64 at = TRANS_A ? (u64)(k0 + p) * m + row0 + i : (u64)(row0 + i) * k + k0 + p;
            as[p][i] = inside ? a[at] : 0;
        }
        for (int e = t; e < TILE_K * TILE_N; e += THREADS) {
            int j = TRANS_B ? e / TILE_K : e % TILE_N, p = TRANS_B ? e % TILE_K : e / TILE_N;
            bool inside = col0 + j < n && k0 + p < k;
            u64 at = TRANS_B ? (u64)(col0 + j) * k + k0 + p : (u64)(k0 + p) * n + col0 + j;
            bs[p][j] = inside ? b[at] : 0;
        }
        __syncthreads();
        int last = min(TILE_K, k - k0);
        for (int p = 0; p < last; ++p) {
            REAL ar[RM], br[RN];
            for (int r = 0; r < RM; ++r) ar[r] = as[p][tm + r * (TILE_M / RM)];
            for (int q = 0; q < RN; ++q) br[q] = bs[p][tn + q * (TILE_N / RN)];
            for (int r = 0; r < RM; ++r)
                for (int q = 0; q < RN; ++q) acc[r][q] = fma_rn(ar[r], br[q], acc[r][q]);
        }
        if ((k0 + TILE_K) % RK_SEGMENT == 0 || k0 + TILE_K >= k)
            for (int r = 0; r < RM; ++r)
                for (int q = 0; q < RN; ++q) {
                    total[r][q] += acc[r][q];
                    acc[r][q] = 0;
                }
    }
    for (int r = 0; r < RM; ++r)
        for (int q = 0; q < RN; ++q) {
            int i = row0 + tm + r * (TILE_M / RM), j = col0 + tn + q * (TILE_N / RN);
            if (i < m && j < n) c[(u64)i * n + j] = total[r][q];
        }
}

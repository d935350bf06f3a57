// det_gemm_mma.cu for short sums of factors that begin anywhere: all warps copy all stages at once, and then multiply. No ring and no
// barriers but one, so that several blocks of a multiprocessor hide each other's latency.
#pragma once
#include "gemm_feed.cuh"

__device__ __forceinline__ void short_results(float (&d)[MI][MJ][4], u32 shared, const u16 *p, const u16 *q, int ld_p, int ld_q, int i0, int j0,
                                              int n_i, int n_j, int n_r, int wi, int wj) {
    constexpr int warps = WI * WJ;
    int me = __shfl_sync(~0u, threadIdx.x / 32, 0), n_step = (n_r + BK - 1) / BK;
    Feed<BI, P_MN, P_VEC, warps> of_p(p, ld_p, i0, n_i, 0, me);
    Feed<BJ, Q_MN, Q_VEC, warps> of_q(q, ld_q, j0, n_j, 0, warps - 1 - me);
    u32 of_even[2][BATCH], of_odd[2][BATCH];
    auto take = [&](u32 (&v)[2][BATCH], int k) {
        if (k >= n_step) return;
        u32 stage = shared + k * STAGE;
        of_p.take(v[0], stage, n_r - k * BK), of_q.take(v[1], stage + BI * BK * 2, n_r - k * BK);
        of_p.skip(BK), of_q.skip(BK);
    };
    auto leave = [&](u32 (&v)[2][BATCH], int k) {
        if (k >= n_step) return;
        u32 stage = shared + k * STAGE;
        of_p.leave(v[0], stage), of_q.leave(v[1], stage + BI * BK * 2);
    };
    take(of_even, 0);
#pragma unroll 1
    for (int k = 0; k < n_step; k += 2) {  // what goes through registers is read a stage ahead
        take(of_odd, k + 1);
        leave(of_even, k);
        take(of_even, k + 2);
        leave(of_odd, k + 1);
    }
    rk_copies_end();
    rk_copies_left<0>();
    __syncthreads();
    Steps v;
#pragma unroll 1
    for (int k = 0; k < n_step; ++k) {
        v.read(shared + k * STAGE, wi, wj);
        v.multiply<0, STEPS>(d);
    }
}

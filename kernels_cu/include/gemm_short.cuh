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
#pragma unroll 1
    for (int k = 0; k < n_step; ++k) {
        u32 stage = shared + k * STAGE;
        int left = n_r - k * BK;
        if (left >= BK) of_p.template every<true>(stage, left), of_q.template every<true>(stage + BI * BK * 2, left);
        else of_p.template every<false>(stage, left), of_q.template every<false>(stage + BI * BK * 2, left);
        of_p.skip(BK), of_q.skip(BK);
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

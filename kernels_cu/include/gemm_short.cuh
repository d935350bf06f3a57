// det_gemm_mma.cu for short sums of factors that begin anywhere: all warps copy all stages at once, and then multiply. No ring and no
// barriers but one, so that several blocks of a multiprocessor hide each other's latency.
#pragma once
#include "gemm_feed.cuh"

__device__ __forceinline__ void short_results(float (&d)[MI][MJ][4], u32 shared, const u16 *p, const u16 *q, int ld_p, int ld_q, int i0, int j0,
                                              int n_i, int n_j, int n_r, int wi, int wj) {
    constexpr int warps = WI * WJ;
    int me = __shfl_sync(~0u, threadIdx.x / 32, 0), n_step = (n_r + BK - 1) / BK;
    using FeedP = Feed<BI, P_MN, P_VEC, warps>;
    using FeedQ = Feed<BJ, Q_MN, Q_VEC, warps>;
    FeedP of_p(p, ld_p, i0, n_i, 0, me);
    FeedQ of_q(q, ld_q, j0, n_j, 0, warps - 1 - me);
    struct Units {
        Loose p[FeedP::batch], q[FeedQ::batch];
    } of_even, of_odd;
    auto take = [&](Units &v, int k) {
        if (k >= n_step) return;
        u32 stage = shared + k * STAGE;
        FeedP p_there = of_p;
        FeedQ q_there = of_q;
        p_there.skip(k * BK), q_there.skip(k * BK);
        p_there.take(v.p, stage, n_r - k * BK), q_there.take(v.q, stage + BI * BK * 2, n_r - k * BK);
    };
    auto leave = [&](Units &v, int k) {
        if (k >= n_step) return;
        u32 stage = shared + k * STAGE;
        FeedP p_there = of_p;
        FeedQ q_there = of_q;
        p_there.skip(k * BK), q_there.skip(k * BK);
        p_there.leave(v.p, stage, n_r - k * BK), q_there.leave(v.q, stage + BI * BK * 2, n_r - k * BK);
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

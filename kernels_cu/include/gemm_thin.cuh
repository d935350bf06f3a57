// det_gemm_mma.cu for few results, whose time is that of a chain, and for factors that begin anywhere: COPIERS warps fill
// the stages, each every COPIERS-th, and WI x WJ warps multiply. Operands are read a stage ahead.
#pragma once
#include "gemm_feed.cuh"
#include "rk_tma.cuh"

#define OWN (ST / COPIERS)                   // stages of a copying warp
#define LAG (OWN > 2 ? OWN - 2 : 0)          // of them on their way while one more is announced
static_assert(ST % COPIERS == 0 && ST % 2 == 0 && SEGMENT / BK % ST == 0, "macros");

__device__ __forceinline__ void copy_stages(u32 shared, u32 full, u32 empty, const u16 *p, const u16 *q, int ld_p, int ld_q, int i0, int j0,
                                            int n_i, int n_j, int n_r) {
    int mine = threadIdx.x / 32 - WI * WJ, n_step = (n_r + BK - 1) / BK, slot = mine, behind = mine;
    u32 phase = 1;
    Feed<BI, P_MN, P_VEC> of_p(p, ld_p, i0, n_i, mine * BK);
    Feed<BJ, Q_MN, Q_VEC> of_q(q, ld_q, j0, n_j, mine * BK);
    auto announce = [&]() {  // the stage of this warp that was requested first
        __syncwarp();
        if (threadIdx.x % 32 == 0) rk_arrive(full + 8 * behind);
        behind = behind + COPIERS < ST ? behind + COPIERS : mine;
    };
    int asked = 0;
#pragma unroll 1
    for (int k = mine; k < n_step; k += COPIERS, ++asked) {
        u32 stage = shared + slot * STAGE;
        int left = n_r - k * BK;
        rk_wait(empty + 8 * slot, phase);
        if (left >= BK) of_p.every<true>(stage, left), of_q.every<true>(stage + BI * BK * 2, left);
        else of_p.every<false>(stage, left), of_q.every<false>(stage + BI * BK * 2, left);
        rk_copies_end();
        of_p.skip(COPIERS * BK), of_q.skip(COPIERS * BK);
        slot += COPIERS;
        if (slot >= ST) slot = mine, phase ^= 1;
        if (THROUGH) rk_copies_left<0>(), announce();
        else if (asked >= LAG) rk_copies_left<LAG>(), announce();
    }
    if (!THROUGH) {
        rk_copies_left<0>();
        for (int k = min(asked, LAG); k > 0; --k) announce();
    }
}

// Chains over all stages, restarted after every segment; results of segments are added left to right. The next stage is
// read after the first products: they wait for what was read before, and so they would wait for it, too.
__device__ __forceinline__ void chain_stages(float (&d)[MI][MJ][4], u32 shared, u32 full, int wi, int wj, int n_step) {
    float sum[MI][MJ][4];
    Steps v[2];
    u32 phase = 0;
    bool there = n_step > 1 && rk_test(full + 8, 0);
    rk_wait(full, 0);
    v[0].read(shared, wi, wj);
#pragma unroll 1
    for (int left = n_step; left > 0; left -= ST) {
#pragma unroll
        for (int s = 0; s < ST; ++s) {
            if (s >= left) break;
            constexpr int far = 2;
            int next = (s + 1) % ST, later = (s + far) % ST;
            u32 flip = s + 1 == ST;
            v[s % 2].multiply<0, 1>(d);
            if (s + 1 < left) {
                if (!there) rk_wait(full + 8 * next, phase ^ flip);
                v[1 - s % 2].read(shared + next * STAGE, wi, wj);
            }
            v[s % 2].multiply<1, STEPS - 1>(d);
            there = s + far < left && rk_test(full + 8 * later, phase ^ (u32)(s + far >= ST));
            v[s % 2].multiply<STEPS - 1, STEPS>(d);
            __syncwarp();
            if (threadIdx.x % 32 == 0) rk_arrive(full + 8 * (ST + s));
        }
        phase ^= 1;
        int made = n_step - left + ST, turn = SEGMENT / BK;
        if (made < n_step ? made % turn != 0 : n_step <= turn) continue;
#pragma unroll
        for (int x = 0; x < MI * MJ * 4; ++x) {
            float &c = d[x / (4 * MJ)][x / 4 % MJ][x % 4], &t = sum[x / (4 * MJ)][x / 4 % MJ][x % 4];
            t = made > turn ? t + c : c;
            c = made < n_step ? 0.0f : t;
        }
    }
}

// Whether the thread has results.
__device__ __forceinline__ bool thin_results(float (&d)[MI][MJ][4], u32 shared, const u16 *p, const u16 *q, int ld_p, int ld_q, int i0, int j0,
                                             int n_i, int n_j, int n_r, int wi, int wj) {
    shared = __shfl_sync(~0u, shared, 0);  // else the assembler computes it again and again
    u32 full = shared + ST * STAGE, empty = full + 8 * ST;
    if (threadIdx.x == 0) {
        for (int s = 0; s < ST; ++s) {
            rk_barrier_init(full + 8 * s, 1);
            rk_barrier_init(empty + 8 * s, WI * WJ);
        }
        rk_barriers_ready();
    }
    __syncthreads();
    if (threadIdx.x >= N_THREAD) {
        copy_stages(shared, full, empty, p, q, ld_p, ld_q, i0, j0, n_i, n_j, n_r);
        return false;
    }
    chain_stages(d, shared, full, wi, wj, (n_r + BK - 1) / BK);
    return true;
}

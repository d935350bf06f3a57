// det_gemm_mma.cu for few results, whose time is that of a chain, and for factors that begin anywhere: COPIERS warps fill
// the stages, each every COPIERS-th, and WI x WJ warps multiply. Operands are read one or two stages ahead, and stages are waited for in pairs.
#pragma once
#include "gemm_feed.cuh"
#include "rk_tma.cuh"

#define PAIRS (ST / 2)
static_assert(ST % COPIERS == 0 && ST % 2 == 0 && SEGMENT / BK % ST == 0, "macros");

using FeedP = Feed<BI, P_MN, P_VEC>;
using FeedQ = Feed<BJ, Q_MN, Q_VEC>;
// Fill a stage, `left` terms of which exist. Of what goes through registers all is asked for before the first word is there.
template <bool WHOLE> __device__ __forceinline__ void fill(const FeedP &of_p, const FeedQ &of_q, u32 stage, int left) {
    if constexpr (THROUGH && FeedP::taken && FeedQ::taken) {
        Loose of_stage_p[FeedP::batch], of_stage_q[FeedQ::batch];
        of_p.template take<WHOLE>(of_stage_p, stage, left), of_q.template take<WHOLE>(of_stage_q, stage + BI * BK * 2, left);
        of_p.template leave<WHOLE>(of_stage_p, stage, left), of_q.template leave<WHOLE>(of_stage_q, stage + BI * BK * 2, left);
    } else of_p.template every<WHOLE>(stage, left), of_q.template every<WHOLE>(stage + BI * BK * 2, left);
}
// A warp never waits for what it asked for: a stage is full when the copies of all lanes are there.
__device__ __forceinline__ void copy_stages(u32 shared, u32 full, u32 empty, const u16 *p, const u16 *q, int ld_p, int ld_q, int i0, int j0,
                                            int n_i, int n_j, int n_r) {
    int mine = __shfl_sync(~0u, threadIdx.x / 32, 0) - WI * WJ, slot = mine;  // the compiler sees that a warp has one
    u32 phase = 1;
    FeedP of_p(p, ld_p, i0, n_i, mine * BK);
    FeedQ of_q(q, ld_q, j0, n_j, mine * BK);
#pragma unroll 1
    for (int left = n_r - mine * BK; left > 0; left -= COPIERS * BK) {
        rk_wait(empty + 8 * (slot / 2), phase);
        if (left >= BK) fill<true>(of_p, of_q, shared + slot * STAGE, left);
        else fill<false>(of_p, of_q, shared + slot * STAGE, left);
        of_p.skip(COPIERS * BK), of_q.skip(COPIERS * BK);
        if (THROUGH) {
            rk_copies_end(), rk_copies_left<0>();
            rk_arrive(full + 8 * slot);
        } else rk_copies_arrive(full + 8 * slot);
        slot += COPIERS;
        if (slot >= ST) slot = mine, phase ^= 1;
    }
    rk_copies_end(), rk_copies_left<0>();
}

#define RING (MI * MJ == 1 ? 4 : 2)  // stages whose operands are in registers: each is read RING / 2 stages before it is multiplied
static_assert(PAIRS % (RING / 2) == 0, "macros");

// A turn of the ring, of whose stages `left` are filled, if not ALL and more. A later stage is read after the first products of
// one: they wait for what was read before, and so they would wait for it, too. `there`: whether the pair after the next one is.
template <bool ALL>
__device__ __forceinline__ void chain_turn(float (&d)[MI][MJ][4], Steps (&v)[RING], u32 shared, u32 full, int wi, int wj, int left, u32 phase,
                                           bool &there) {
#pragma unroll
    for (int t = 0; t < PAIRS; ++t) {
        int next = (t + 1) % PAIRS * 2, later = (t + 2) % PAIRS * 2;
        u32 of_next = phase ^ (u32)(next == 0), of_later = phase ^ (u32)(later < 4);
        bool more = ALL || 2 * t + 2 < left;  // the next pair's first stage is filled
        if (!ALL && 2 * t >= left) break;
#pragma unroll
        for (int u = 0; u < 2; ++u) {
            if (u && !ALL && 2 * t + 1 >= left) break;
            Steps &now = v[(2 * t + u) % RING];
            constexpr int further = RING / 2;
            now.multiply<0, 1>(d);
            if (u + further == 2 && more && !there) {
                rk_wait(full + 8 * next, of_next);
                if ((ALL && next) || 2 * t + 3 < left) rk_wait(full + 8 * next + 8, of_next);
            }
            int slot = u + further < 2 ? 2 * t + 1 : next + (u + further) % 2;  // not used if it is not filled
            v[(2 * t + u + further) % RING].read(shared + slot * STAGE, wi, wj);
            now.multiply<1, STEPS - 1>(d);
            if (u) there = ((ALL && later > 2) || 2 * t + 5 < left) && rk_peek(full + 8 * later, of_later) & rk_peek(full + 8 * later + 8, of_later);
            now.multiply<STEPS - 1, STEPS>(d);
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) rk_arrive(full + 8 * (ST + t));
    }
}

// Chains over all stages, restarted after every segment; results of segments are added left to right.
__device__ __forceinline__ void chain_stages(float (&d)[MI][MJ][4], u32 shared, u32 full, int wi, int wj, int n_step) {
    float sum[MI][MJ][4];
    Steps v[RING];
    u32 phase = 0;
    bool there = false;
    rk_wait(full, 0);
    if (n_step > 1) rk_wait(full + 8, 0);
#pragma unroll
    for (int s = 0; s < RING / 2; ++s) v[s].read(shared + s * STAGE, wi, wj);
#pragma unroll 1
    for (int left = n_step; left > 0; left -= ST, phase ^= 1) {
        if (left > ST) chain_turn<true>(d, v, shared, full, wi, wj, left, phase, there);
        else chain_turn<false>(d, v, shared, full, wi, wj, left, phase, there);
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
    rk_barriers_begin<ST>(shared + ST * STAGE, 32), rk_barriers_begin<PAIRS, 1>(shared + ST * (STAGE + 8), WI * WJ);
    rk_barriers_ready();
    shared = __shfl_sync(~0u, shared, 0);  // else the assembler computes it again and again
    u32 full = shared + ST * STAGE, empty = full + 8 * ST;
    __syncthreads();
    if (threadIdx.x >= N_THREAD) {
        copy_stages(shared, full, empty, p, q, ld_p, ld_q, i0, j0, n_i, n_j, n_r);
        return false;
    }
    chain_stages(d, shared, full, wi, wj, (n_r + BK - 1) / BK);
    return true;
}

#if CLUSTER > 1
// Of the results of all segments, each made by one block of a cluster, add every CLUSTER-th four of a thread's, from number `part` on. `room`:
// 16 bytes for four results of each thread that multiplies; all threads of the cluster call.
__device__ __forceinline__ void join_shares(float *d, float4 *room, bool makes, int part) {
    constexpr int fours = MI * MJ;
    float4 *mine = room + threadIdx.x;
    if (makes)
#pragma unroll
        for (int x = 0; x < fours; ++x) mine[x * N_THREAD] = make_float4(d[4 * x], d[4 * x + 1], d[4 * x + 2], d[4 * x + 3]);
    rk_cluster_arrive();
    rk_cluster_wait();
#pragma unroll
    for (int x = 0; x < fours; ++x) {
        if (!makes || x % CLUSTER != part) continue;
        float4 v[CLUSTER];
#pragma unroll
        for (int y = 0; y < CLUSTER; ++y) v[y] = rk_cluster_load(mine + x * N_THREAD, y);
        d[4 * x] = v[0].x, d[4 * x + 1] = v[0].y, d[4 * x + 2] = v[0].z, d[4 * x + 3] = v[0].w;
#pragma unroll
        for (int y = 1; y < CLUSTER; ++y) rk_add_to(d + 4 * x, v[y]);
    }
    rk_cluster_arrive();
    rk_cluster_wait();  // until no block reads another's
}
#endif

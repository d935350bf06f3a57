// det_gemm_mma.cu for few results, whose time is that of a chain, and for factors that begin anywhere: COPIERS warps fill
// the stages, each every COPIERS-th, and WI x WJ warps multiply. Operands are read a stage ahead.
#pragma once
#include "rk_tma.cuh"

#define OWN (ST / COPIERS)                   // stages of a copying warp
#define LAG (OWN > 2 ? OWN - 2 : 0)          // of them on their way while one more is announced
#define THROUGH (P_VEC == 1 || Q_VEC == 1)   // some words go through registers
#define BATCH 32                             // rows that do so together
static_assert(ST % COPIERS == 0 && ST % 2 == 0 && SEGMENT / BK % ST == 0 && BI <= 64 && BJ <= 64, "macros");

// A warp's copies of a factor for a stage, VEC elements each: 8 or 2 asynchronously, 1 through registers, in pairs.
// Lines that do not exist may hold anything: what comes of them is not written.
template <int LINES, int MN, int VEC> struct Feed {
    static constexpr int unit = VEC == 8 ? 8 : 2, width = (MN ? LINES : BK) / unit, rows = MN ? BK : LINES;
    static constexpr int lanes = width < 32 ? width : 32, each = 32 / lanes, count = rows / each;  // rows a turn; turns
    static_assert(width <= 32 && rows % each == 0, "a row a turn, or more");
    const u16 *m, *from;
    u64 stride;
    int row, at, n_line, line0;
    u32 first, second;  // bytes that exist of an element pair or unit; of its second element

    __device__ __forceinline__ Feed(const u16 *m, int ld, int line0, int n_line, int r) : m(m), stride(ld), n_line(n_line), line0(line0) {
        int lane = threadIdx.x % 32;
        row = lane / lanes, at = lane % lanes * unit;
        int left = n_line - line0 - at;
        first = MN ? 2 * max(0, min(left, unit)) : 2 * unit;
        from = MN ? m + (u64)(r + row) * ld + (left > 0 ? line0 + at : 0) : m + r + at;
    }
    __device__ __forceinline__ void skip(int r) { from += MN ? r * stride : r; }
    // Address of turn u, and the bytes of it that exist if `left` terms of the sum are there.
    __device__ __forceinline__ const u16 *place_of(int u) const {
        return MN ? from + (u64)(u * each) * stride : from + (u64)min(line0 + row + u * each, n_line - 1) * stride;
    }
    __device__ __forceinline__ int bytes(int u, int left) const {
        return MN ? (row + u * each < left ? first : 0) : 2 * max(0, min(left - at, unit));
    }
    __device__ __forceinline__ u32 to(u32 stage, int u) const {
        int r = row + u * each;
        return stage + (MN ? place<LINES, MN>(at, r) : place<LINES, MN>(r, at)) + at % 8 * 2;
    }
    template <bool WHOLE> __device__ __forceinline__ void ask(u32 stage, int left) const {
        const u16 *x = from + (MN ? 0 : (u64)min(line0 + row, n_line - 1) * stride);
#pragma unroll
        for (int u = 0; u < count; ++u) {
            int n = WHOLE ? first : bytes(u, left);
            rk_copy<VEC == 8 ? 16 : 4>(to(stage, u), n ? x : m, n);
            if (MN) x += each * stride;
            else x += line0 + row + (u + 1) * each < n_line ? each * stride : 0;
        }
    }
    template <bool WHOLE> __device__ __forceinline__ void read(u32 (&v)[BATCH], int u0, int left) const {
#pragma unroll
        for (int u = 0; u < BATCH; ++u)
            if (u < count) {
                const u16 *x = place_of(u0 + u);
                int n = WHOLE ? first : bytes(u0 + u, left);
                u32 low = n > 0 ? x[0] : 0, high = n > 2 ? x[1] : 0;
                v[u] = low | high << 16;
            }
    }
    __device__ __forceinline__ void write(const u32 (&v)[BATCH], u32 stage, int u0) const {
#pragma unroll
        for (int u = 0; u < BATCH; ++u)
            if (u < count) rk_write_word(to(stage, u0 + u), v[u]);
    }
    template <bool WHOLE> __device__ __forceinline__ void every(u32 stage, int left) const {
        if constexpr (VEC > 1) ask<WHOLE>(stage, left);
        else
#pragma unroll 1
            for (int u = 0; u < count; u += BATCH) {
                u32 v[BATCH];
                read<WHOLE>(v, u, left);
                write(v, stage, u);
            }
    }
};

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

// Sums of weights times exponentials on tensor cores, which both directions of a layer of sums are made of: BI outputs of
// BJ samples a block. Weights are words of round_weights.cu, exponentials those of tensor_stage.cu; with SPLIT each is a pair.
#pragma once
#include "gemm_warps.cuh"
#include "circuit_own.cuh"
#include "circuit_split.cuh"

#define LINE (BI + 4)  // of the totals of a sample: what a warp writes at once lies in different banks
#define LINE_OF(size) (((size) + 7) / 8 * 8)  // of weights

struct Warp { int i, j; };  // first output and sample of a warp

__device__ __forceinline__ Warp own_part() {
    int warp = threadIdx.x / 32;
    return Warp{warp % WI * (BI / WI), warp / WI * (BJ / WJ)};
}

#define OF_P (BI * BK * 2)  // bytes of a plane in a stage: high p, low p, high q, low q
#define OF_Q (BJ * BK * 2)

// Fragments of a warp for a step of 16.
struct Fragments {
    u32 a[MI][4], b[MJ / 2][4];
    __device__ __forceinline__ void load_p(u32 at, Warp own, int e) {
#pragma unroll
        for (int x = 0; x < MI; ++x) fragment<BI, P_MN>(a[x], at, own.i + 16 * x, e);
    }
    __device__ __forceinline__ void load_q(u32 at, Warp own, int e) {
#pragma unroll
        for (int x = 0; x < MJ / 2; ++x) fragment<BJ, Q_MN>(b[x], at, own.j + 16 * x, e);
    }
};
__device__ __forceinline__ void multiply(float (&d)[MI][MJ][4], const Fragments &of_p, const Fragments &of_q) {
#pragma unroll
    for (int x = 0; x < MI; ++x)
#pragma unroll
        for (int y = 0; y < MJ; ++y) rk_mma(d[x][y], of_p.a[x], of_q.b[y / 2][y % 2], of_q.b[y / 2][2 + y % 2]);
}

// Products of split factors, COUNT steps of 16 from depth e0 of a stage on: of each step low p by high q, then high p by low q;
// then of each step the high ones, so that the small products are added while the chain is small. Fragments are read a step ahead;
// `between(s)` is called after the small products of step s, while tensor cores work.
template <int COUNT, class Between>
__device__ __forceinline__ void multiply_split(float (&d)[MI][MJ][4], u32 at, Warp own, int e0, Between between) {
    Fragments high[COUNT], low[2];
    auto load = [&](int s) {
        high[s].load_q(at + 2 * OF_P, own, e0 + 16 * s);
        low[s % 2].load_p(at + OF_P, own, e0 + 16 * s);
        high[s].load_p(at, own, e0 + 16 * s);
        low[s % 2].load_q(at + 2 * OF_P + OF_Q, own, e0 + 16 * s);
    };
    load(0);
#pragma unroll
    for (int s = 0; s < COUNT; ++s) {
        if (s + 1 < COUNT) load(s + 1);
        multiply(d, low[s % 2], high[s]);
        multiply(d, high[s], low[s % 2]);
        between(s);
    }
#pragma unroll
    for (int s = 0; s < COUNT; ++s) multiply(d, high[s], high[s]);
}

// d = d + part, and part = 0.
__device__ __forceinline__ void add_part(float (&d)[MI][MJ][4], float (&part)[MI][MJ][4]) {
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x) {
        float &p = part[x / (4 * MJ)][x / 4 % MJ][x % 4];
        d[x / (4 * MJ)][x / 4 % MJ][x % 4] = d[x / (4 * MJ)][x / 4 % MJ][x % 4] + p;
        p = 0.0f;
    }
}

// run_stages for split factors: each stage is one chain from 0, which is then added. The planes of p and q are requested in between.
template <class FetchP, class FetchQ>
__device__ __forceinline__ void run_split(float (&d)[MI][MJ][4], u32 shared, Warp own, int n_step, FetchP fetch_p, FetchQ fetch_q) {
    float part[MI][MJ][4] = {};
    for (int k = 0, s = 0; k < n_step; ++k, s = s + 1 == ST ? 0 : s + 1) {
        rk_copies_left<ST - 2>();
        __syncthreads();
        int next = k + ST - 1, slot = s == 0 ? ST - 1 : s - 1;
        multiply_split<BK / 16>(part, shared + s * 2 * STAGE, own, 0, [&](int e) {
            if (next < n_step && e == 0) fetch_p(slot, next);
            if (next < n_step && e == 1) fetch_q(slot, next);
        });
        rk_copies_end();
        add_part(d, part);
    }
}

// One chain over n_r inputs for each output and sample, or with SPLIT one of each BK inputs; p, q: first weight, first exponential of the tile, n_i, n_j of them.
// `ready` waits until exponentials can be read; weights are requested before that. Low planes are p_apart and q_apart words on.
template <class Ready>
__device__ __forceinline__ void make_chains(float (&d)[MI][MJ][4], u32 shared, Warp own, const u16 *p, int ld_p, int n_i, const u16 *q,
                                            int ld_q, int n_j, int n_r, i64 p_apart, i64 q_apart, Ready ready) {
    int n_step = (n_r + BK - 1) / BK;
    auto ask_p = [&](int slot, int k) {
        u32 to = shared + slot * (SPLIT + 1) * STAGE;
        fetch<BI, P_MN>(to, p, ld_p, 0, n_i, k * BK, n_r);
        if (SPLIT) fetch<BI, P_MN>(to + OF_P, p + p_apart, ld_p, 0, n_i, k * BK, n_r);
    };
    auto ask_q = [&](int slot, int k) {
        u32 to = shared + slot * (SPLIT + 1) * STAGE + (SPLIT + 1) * OF_P;
        fetch<BJ, Q_MN>(to, q, ld_q, 0, n_j, k * BK, n_r);
        if (SPLIT) fetch<BJ, Q_MN>(to + OF_Q, q + q_apart, ld_q, 0, n_j, k * BK, n_r);
    };
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x) d[x / (4 * MJ)][x / 4 % MJ][x % 4] = 0.0f;
#pragma unroll
    for (int s = 0; s < ST - 1; ++s)
        if (s < n_step) ask_p(s, s);
    ready();
#pragma unroll
    for (int s = 0; s < ST - 1; ++s) {
        if (s < n_step) ask_q(s, s);
        rk_copies_end();
    }
#if SPLIT
    run_split(d, shared, own, n_step, ask_p, ask_q);
#else
    run_stages(d, shared, own.i, own.j, n_step, [&](int slot, int k) {
        ask_p(slot, k);
        ask_q(slot, k);
    });
#endif
    __syncthreads();  // before shared memory has another use
}

// Call go(x, i, j) for each chain of a thread: output i of sample j of the tile.
template <class Go> __device__ __forceinline__ void each_chain(Warp own, Go go) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x)
        go(x, own.i + 16 * (x / (4 * MJ)) + x / 2 % 2 * 8 + lane / 4, own.j + 8 * (x / 4 % MJ) + lane % 4 * 2 + x % 2);
}

// Put totals where all threads find them: of output i and sample j at area[j * LINE + i].
__device__ __forceinline__ void spread(const float (&total)[MI][MJ][4], float *area, Warp own) {
    each_chain(own, [&](int x, int i, int j) { area[j * LINE + i] = total[x / (4 * MJ)][x / 4 % MJ][x % 4]; });
    __syncthreads();
}

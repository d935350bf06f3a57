// Sums of weights times exponentials on tensor cores, which both directions of a layer of sums are made of: BI outputs of
// BJ samples a block. Weights are words of round_weights.cu, exponentials those of tensor_stage.cu.
#pragma once
#include "gemm_warps.cuh"
#include "circuit_own.cuh"

#define LINE (BI + 4)  // of the totals of a sample: what a warp writes at once lies in different banks
#define LINE_OF(size) (((size) + 7) / 8 * 8)  // of weights

struct Warp { int i, j; };  // first output and sample of a warp

__device__ __forceinline__ Warp own_part() {
    int warp = threadIdx.x / 32;
    return Warp{warp % WI * (BI / WI), warp / WI * (BJ / WJ)};
}

// One chain over n_r inputs for each output and sample; p, q: first weight, first exponential of the tile, n_i, n_j of them.
// `ready` waits until exponentials can be read; weights are requested before that.
template <class Ready>
__device__ __forceinline__ void make_chains(float (&d)[MI][MJ][4], u32 shared, Warp own, const u16 *p, int ld_p, int n_i, const u16 *q,
                                            int ld_q, int n_j, int n_r, Ready ready) {
    int n_step = (n_r + BK - 1) / BK;
    auto ask_p = [&](int slot, int k) { fetch<BI, P_MN>(shared + slot * STAGE, p, ld_p, 0, n_i, k * BK, n_r); };
    auto ask_q = [&](int slot, int k) { fetch<BJ, Q_MN>(shared + slot * STAGE + BI * BK * 2, q, ld_q, 0, n_j, k * BK, n_r); };
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
    run_stages(d, shared, own.i, own.j, n_step, [&](int slot, int k) {
        ask_p(slot, k);
        ask_q(slot, k);
    });
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

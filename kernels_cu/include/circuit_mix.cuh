// Sums of weights times exponentials, which both directions of a layer of sums are made of:
//   log sum_k W(i, k) exp(v_k)  for the outputs i of a tile and a few samples.
// Inputs k in segments of 64: M the largest v of a segment, one chain of fma of W exp(v - M); segments are put
// together from the left as pairs (largest, sum). M and exp(v - M) are made once for all outputs of a block.
//
// A block has OUTPUTS x LANES threads: a thread makes the chains of one segment of one output, of all SAMPLES;
// LANES segments at a time. Then thread (output, sample) puts them together.
#pragma once
#include "circuit_rows.cuh"

#ifndef OUTPUTS
#define OUTPUTS 16
#endif
#ifndef LANES
#define LANES 16
#endif
#ifndef SAMPLES
#define SAMPLES 1
#endif
#define THREADS (OUTPUTS * LANES)
#define STRIDE (SEGMENT + 4)  // two segments that a warp reads at a time lie in different banks

struct Staged {
    REAL w[SAMPLES][LANES][STRIDE];  // exp(v - M)
    REAL part[SAMPLES][LANES][OUTPUTS + 1];
    REAL top[SAMPLES][LANES], before[SAMPLES][LANES], now[SAMPLES][LANES];
    REAL largest[2][SAMPLES];  // of the segments so far; two, since one is read while the other is written
};

// Where the outputs of a tile have got to. A thread below OUTPUTS * SAMPLES holds one sum.
struct Mixture {
    REAL total;
    int turn;  // which `largest` counts
};

__device__ __forceinline__ Mixture begin_mixture(Staged &staged) {
    if (threadIdx.x < SAMPLES) staged.largest[0][threadIdx.x] = NOTHING;
    return Mixture{(REAL)0, 0};
}

// Add inputs 0 to n_in - 1: input(sample, k), weight W(i, k) = weights[i * out_step + k * in_step]. All threads come.
template <class Input>
__device__ __forceinline__ void mix(Mixture &mixture, Staged &staged, int n_sample, int n_out, int n_in, const REAL *weights,
                                    u64 out_step, u64 in_step, Input input) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = threadIdx.x % OUTPUTS, l = threadIdx.x / OUTPUTS;
    for (int first = 0; first < n_in; first += LANES * SEGMENT) {
        int n_segment = min(LANES, (n_in - first + SEGMENT - 1) / SEGMENT);
        for (int j = warp; j < SAMPLES * n_segment; j += THREADS / 32) {
            int b = j / n_segment, s = j % n_segment, k = first + s * SEGMENT + lane;
            REAL v0 = b < n_sample && k < n_in ? input(b, k) : NOTHING;
            REAL v1 = b < n_sample && k + 32 < n_in ? input(b, k + 32) : NOTHING;
            REAL m = rk_max(v0, v1);
#pragma unroll
            for (int x = 16; x; x /= 2) m = rk_max(m, __shfl_xor_sync(~0u, m, x));
            bool some = m > NOTHING;
            staged.w[b][s][lane] = some ? rk_exp(v0 - m) : (REAL)0;
            staged.w[b][s][lane + 32] = some ? rk_exp(v1 - m) : (REAL)0;
            if (lane == 0) staged.top[b][s] = m;
        }
        __syncthreads();
        for (int j = threadIdx.x; j < SAMPLES * n_segment; j += THREADS) {  // what the pairs are scaled by
            int b = j / n_segment, s = j % n_segment;
            REAL old = staged.largest[mixture.turn][b], m = staged.top[b][s];
            for (int q = 0; q < s; ++q) old = rk_max(old, staged.top[b][q]);
            REAL both = rk_max(old, m);
            staged.before[b][s] = old > NOTHING ? rk_exp(old - both) : (REAL)0;
            staged.now[b][s] = m > NOTHING ? rk_exp(m - both) : (REAL)0;
            if (s == n_segment - 1) staged.largest[mixture.turn ^ 1][b] = both;
        }
        mixture.turn ^= 1;
        if (l < n_segment && i < n_out) {
            REAL sum[SAMPLES];
#pragma unroll
            for (int b = 0; b < SAMPLES; ++b) sum[b] = (REAL)0;
            int k0 = first + l * SEGMENT, n = min(SEGMENT, n_in - k0);
            const REAL *from = weights + i * out_step + k0 * in_step;
#pragma unroll 16
            for (int k = 0; k < n; ++k) {
                REAL weight = from[k * in_step];
#pragma unroll
                for (int b = 0; b < SAMPLES; ++b) sum[b] = rk_fma(weight, staged.w[b][l][k], sum[b]);
            }
#pragma unroll
            for (int b = 0; b < SAMPLES; ++b) staged.part[b][l][i] = sum[b];
        }
        __syncthreads();
        if (threadIdx.x < OUTPUTS * SAMPLES) {
            int b = threadIdx.x / OUTPUTS;
            for (int s = 0; s < n_segment; ++s)
                mixture.total = rk_fma(mixture.total, staged.before[b][s], staged.part[b][s][i] * staged.now[b][s]);
        }
    }
}

// A block of a log-softmax: 64 neighbouring logits of a row, which four neighbouring lanes hold.
#pragma once
#include "rk_math64.cuh"
#include "rk_math.cuh"

#define RK_BLOCK 64
__device__ __forceinline__ float rk_lowest(float) { return -RK_INF; }
__device__ __forceinline__ double rk_lowest(double) { return -RK_INF64; }

// What exponentials are taken from: the largest logit, or 0 where all are -infinity.
template <class T> __device__ __forceinline__ T rk_anchor(T peak) { return peak == rk_lowest(peak) ? T(0) : peak; }

// Lane q of four holds v[j][l] of column 8 j + 2 q + l. The largest (NaN does not count), and the sum of
// exp(v - largest): a binary tree over the bits 3, 0, 4, 5, 1, 2 of the column. All four lanes get both.
template <class T> __device__ __forceinline__ void rk_logprob_block(const T (&v)[8][2], T &peak, T &mass) {
    peak = rk_lowest(v[0][0]);
#pragma unroll
    for (int x = 0; x < 16; ++x) peak = v[x / 2][x % 2] > peak ? v[x / 2][x % 2] : peak;
#pragma unroll
    for (int lane = 1; lane < 4; lane *= 2) {
        T other = __shfl_xor_sync(~0u, peak, lane);
        peak = other > peak ? other : peak;
    }
    T anchor = rk_anchor(peak), s[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        T even = rk_exp(v[2 * w][0] - anchor) + rk_exp(v[2 * w + 1][0] - anchor);
        s[w] = even + (rk_exp(v[2 * w][1] - anchor) + rk_exp(v[2 * w + 1][1] - anchor));
    }
    mass = (s[0] + s[1]) + (s[2] + s[3]);
    mass += __shfl_xor_sync(~0u, mass, 1);
    mass += __shfl_xor_sync(~0u, mass, 2);
}

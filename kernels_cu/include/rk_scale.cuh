// Noise management: statistics of the inputs of a sample, and the scale computed from them.
#pragma once
#include "rk_math.cuh"

// The largest |x| as bits, which order as the numbers do: more than LARGEST_FINITE is infinity or NaN. And max x,
// with its sign turned into an order of bits as well.
#define LARGEST_FINITE 0x7f7fffffu
struct Extent {
    u32 largest, top;
};

__device__ __forceinline__ void widen(Extent &e, float v, bool top) {
    u32 bits = __float_as_uint(v);
    e.largest = max(e.largest, bits & 0x7fffffffu);
    if (top) e.top = max(e.top, bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}
__device__ __forceinline__ float top_of(const Extent &e) { return __uint_as_float(e.top & 0x80000000u ? e.top & 0x7fffffffu : ~e.top); }

// Widen, for each of ROWS rows of n elements, by what one of `threads` threads looks at: V at a time (1, or 4 that are
// aligned), BATCH of each row under way together. Rows beyond n_row and the ends of rows are looked at several times,
// which a maximum does not mind.
template <int V, int BATCH, int ROWS>
__device__ __forceinline__ void widen_rows(Extent (&e)[ROWS], const float *x, int n_row, int n, int thread, int threads, bool top) {
    for (int i = thread * V; i < n; i += BATCH * threads * V) {
        __align__(16) float q[ROWS][BATCH][V];
#pragma unroll
        for (int k = 0; k < ROWS * BATCH; ++k) {
            const float *at = x + ((i64)min(k / BATCH, n_row - 1) * n + min(i + k % BATCH * threads * V, n - V));
            if (V == 4) *(float4 *)q[k / BATCH][k % BATCH] = *(const float4 *)at;
            else q[k / BATCH][k % BATCH][0] = *at;
        }
#pragma unroll
        for (int k = 0; k < ROWS * BATCH * V; ++k) widen(e[k / (BATCH * V)], q[k / (BATCH * V)][k / V % BATCH][k % V], top);
    }
}

// Over the lanes of a warp; maxima have no order.
__device__ __forceinline__ void widen_warp(Extent &e, bool top) {
    e.largest = __reduce_max_sync(0xffffffffu, e.largest);
    if (top) e.top = __reduce_max_sync(0xffffffffu, e.top);
}

__device__ __forceinline__ float at_most(float v, float threshold) { return threshold > 0.0f ? fminf(v, threshold) : v; }

// Modes 0 to 3 of tile_scale.cu.
__device__ __forceinline__ float plain_scale(int mode, const Extent &e, float threshold) {
    if (mode == 1) return at_most(__uint_as_float(e.largest), threshold);
    if (mode == 2) return at_most(top_of(e), threshold);
    if (mode == 3) return threshold > 0.0f ? threshold : 1.0f;
    return 1.0f;
}

// Mode 5: of the sums of the positive and of the negative inputs, chains in ascending order; a is the limited max |x|.
__device__ __forceinline__ float np_sum(int n, const float *x, float a, float step, float max_bm_res, float bound) {
    float positive = 0.0f, negative = 0.0f;
    for (int i = 0; i < n; ++i) {
        if (x[i] > 0.0f) positive += x[i];
        if (x[i] < 0.0f) negative += x[i];
    }
    float s = fmaxf(positive, -negative) * 0.6f / bound;
    if (step > 0.0f) s = fminf(a / step * max_bm_res, s);
    return fmaxf(a, s);
}

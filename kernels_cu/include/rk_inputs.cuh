// Inputs computed inside tile_forward: the scale of its samples, and the conversion of a stage.
#pragma once
#include "rk_rounds.cuh"
#include "rk_scale.cuh"
#include "tile_panels.cuh"

// Inputs of a stage, from k0 of the sum on, made in place by the threads first, first + stride, ...
__device__ __forceinline__ void convert_inputs(float *xs, const Rows &rows, int k0, int n_in, const Converter &converter, u64 first_sample,
                                               uint2 key, int first, int stride) {
    for (int e = first; e < TILE_M * TILE_K / UNIT; e += stride) {
        int m = e / (TILE_K / UNIT), at = e % (TILE_K / UNIT) * UNIT, s = rows.sample[m];
        if (s < 0) continue;
        Unit *place = (Unit *)(xs + m * ROW_X + at), q = *place;
        float factor = rows.factor[m];
#pragma unroll
        for (int u = 0; u < UNIT; ++u)  // beyond n_in there are zeros, which are not read
            q.v[u] = make_input<INPUT_DRAWS>(q.v[u], factor, converter, IN_OP, k0 + at + u, first_sample + s, rows.round[m], key);
        *place = q;
    }
}

// Scales of all samples, which every block finds for itself while helpers ask for weights, the first one for a later
// kernel as well if there is one; returns whether all inputs are finite.
__device__ __forceinline__ bool find_scales(Rows &rows, Extent *shared, int n_batch, int n_in, const float *x, float threshold,
                                            const float *io, float *alpha) {
    constexpr int warps = WORKERS / 32;
    if (threadIdx.x < WORKERS) {
        Extent e[TILE_M];
#pragma unroll
        for (int m = 0; m < TILE_M; ++m) e[m] = Extent{0u, 0u};
        widen_rows<VEC, TILE_M < 4 ? 8 : 2, TILE_M>(e, x, n_batch, n_in, threadIdx.x, WORKERS, MODE == 2);
#pragma unroll
        for (int m = 0; m < TILE_M; ++m) {
            widen_warp(e[m], MODE == 2);
            if (threadIdx.x % 32 == 0) shared[m * warps + threadIdx.x / 32] = e[m];
        }
    }
    __syncthreads();
    bool finite = true;
    int m = threadIdx.x;
    if (m < n_batch) {
        Extent all = shared[m * warps];
        for (int warp = 1; warp < warps; ++warp) {
            all.largest = max(all.largest, shared[m * warps + warp].largest);
            all.top = max(all.top, shared[m * warps + warp].top);
        }
        finite = all.largest <= LARGEST_FINITE;
        float a = plain_scale(MODE, all, threshold);
        rows.alpha[m] = a;
        rows.factor[m] = input_factor(a, 1.0f, io);
        if (blockIdx.x == 0 && alpha) alpha[m] = a;
    }
    return finite;
}

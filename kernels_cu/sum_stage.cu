// Precompute scaled exponentials of the inputs of sums, for many samples.
// For each segment of 64 inputs: the largest value M, rounded up to REAL, and exp(value - M).
//
//   first (n_segment) i64, count int: the inputs of a segment, whose values are products of rows (inputs, WIDTH), -1 for none, of
//   values (n_sample, n_value) double; WIDTH 0: input k is column k. LIFT: lifts of values and flows (REAL) instead.
//   w (n_segment * 64, n_column) exp(value - M), 0 where there is no input; top (n_segment, n_column) M   REAL
//   n_column is a multiple of 4, not below n_sample.
//
// Grid: (n_segment, samples / 32), blocks of WARPS warps, each of which has 32 / WARPS samples at a time; a block turns what it
// made, so that samples lie side by side. A maximum has no order.
// Macros: REAL, WIDTH, LIFT, WARPS.
// mirror: rpukit/circuits/_mirror/layers.py::sum_stage
// op: rpukit.circuits.ops.sum_launch.sum_stage
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: LIFT=1
// check: WIDTH=2
// check: WIDTH=1
// check: WIDTH=2 WARPS=32
// source: docs/semantics/circuits.md, section 1.
#include "circuit_rows.cuh"

#ifndef LIFT
#define LIFT 0
#endif
#ifndef WARPS
#define WARPS 8
#endif
#define TOGETHER 32  // samples of a block
#define EACH (TOGETHER / WARPS)  // of a warp

extern "C" __global__ void __launch_bounds__(32 * WARPS)
sum_stage(int n_sample, int n_column, int n_value, const i64 *first, const int *count, const int *rows, const double *values,
          const REAL *flows, REAL *w, REAL *top) {
    __shared__ REAL turned[SEGMENT][TOGETHER + 1];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, s = blockIdx.x, n = count[s];
    i64 at = first[s];
    constexpr int width = WIDTH ? WIDTH : 1;
    int place[2][width];
#pragma unroll
    for (int x = 0; x < 2 * width; ++x) {
        i64 k = at + min(lane + x / width * 32, n - 1);
        place[x / width][x % width] = WIDTH ? rows[k * width + x % width] : (int)k;
    }
    wait_for_earlier();
    for (int b0 = blockIdx.y * TOGETHER; b0 < n_column; b0 += gridDim.y * TOGETHER) {
        double v[EACH][2];
#pragma unroll
        for (int y = 0; y < 2 * EACH; ++y) {
            int b = b0 + warp * EACH + y / 2;
            bool there = b < n_sample && lane + y % 2 * 32 < n;
            u64 line = (u64)min(b, n_sample - 1) * n_value, i = line + place[y % 2][0];
            double made = !WIDTH ? LIFT ? lift_of(values[i], flows[i]) : values[i] : product_of(place[y % 2], values + line);
            v[y / 2][y % 2] = there ? made : IMPOSSIBLE;
        }
#pragma unroll
        for (int g = 0; g < EACH; ++g) {
            REAL m = largest_of_warp(reference_of(rk_max(v[g][0], v[g][1])));
            int b = b0 + warp * EACH + g;
            if (lane == 0 && b < n_column) top[(u64)s * n_column + b] = m;
#pragma unroll
            for (int x = 0; x < 2; ++x) turned[lane + x * 32][warp * EACH + g] = m > NOTHING ? exp_below((REAL)(v[g][x] - (double)m)) : (REAL)0;
        }
        __syncthreads();
        if (b0 + lane < n_column)
#pragma unroll
            for (int k = warp; k < SEGMENT; k += WARPS) w[((u64)s * SEGMENT + k) * n_column + b0 + lane] = turned[k][lane];
        __syncthreads();
    }
}

// Scale flows of vectors of sums that have all of a root's flow, so that they add up to it: what long chains would
// gather of roundings is taken away.
//
//   f *= (float)(root's / total)
//
//   scaled (n_vector, 3) int: first row, rows, and the row of the root; flows (n_sample, n_row)
//
// Grid: (n_vector, samples / 8), a warp a sample. Order, in double: row k in part k modulo 32, ascending, then halves of the
// parts. float32 circuits only.
// mirror: rpukit/circuits/_mirror/scaling.py::scale_flows
// op: rpukit.circuits.ops.scaling.scale_flows
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: docs/semantics/circuits.md, section 2.
#include "circuit_rows.cuh"

#define WARPS 8

extern "C" __global__ void __launch_bounds__(32 * WARPS)
scale_flows(int n_sample, int n_row, const int *scaled, float *flows) {
    int lane = threadIdx.x % 32, first = scaled[3 * blockIdx.x], n = scaled[3 * blockIdx.x + 1], root = scaled[3 * blockIdx.x + 2];
    for (int b = blockIdx.y * WARPS + threadIdx.x / 32; b < n_sample; b += gridDim.y * WARPS) {
        float *line = flows + (u64)b * n_row;
        double total = 0.0;
#pragma unroll 8
        for (int k = lane; k < n; k += 32) total = total + (double)line[first + k];
#pragma unroll
        for (int x = 16; x; x /= 2) total = total + __shfl_xor_sync(~0u, total, x);
        if (!(total > 0.0)) continue;
        float factor = (float)((double)line[root] / total);
#pragma unroll 8
        for (int k = lane; k < n; k += 32) line[first + k] = line[first + k] * factor;
    }
}

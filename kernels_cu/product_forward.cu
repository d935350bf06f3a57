// Log-values of product nodes: the sum of their children's, added from the left.
//
//   out[b, target + i] = values[b, rows[first[i]]] + ... + values[b, rows[first[i + 1] - 1]]
//
//   first (n_out + 1) i64, rows int; values (n_sample, n_row), out (n_sample, width) double, which may be one array
//
// Grid: (products / 256, samples / FEW or less), one thread a product.
// Macro: FEW.
// mirror: rpukit/circuits/_mirror/layers.py::product_forward
// op: rpukit.circuits.ops.layers.product_forward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: FEW=4
// source: docs/semantics/circuits.md, section 1.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
product_forward(int n_sample, int n_out, int n_row, int width, int target, const i64 *first, const int *rows, const double *values,
                double *out) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n_out) return;
    i64 start = first[i], stop = first[i + 1];
    int row = rows[start], second = start + 1 < stop ? rows[start + 1] : 0;
    FEW_SAMPLES(b0, n_sample) {
        const double *from[FEW];
        double v[FEW];
#pragma unroll
        for (int f = 0; f < FEW; ++f) from[f] = values + (u64)min(b0 + f, n_sample - 1) * n_row, v[f] = from[f][row];
        if (start + 1 < stop)
#pragma unroll
            for (int f = 0; f < FEW; ++f) v[f] = v[f] + from[f][second];
        for (i64 k = start + 2; k < stop; ++k) {
            int more = rows[k];
#pragma unroll
            for (int f = 0; f < FEW; ++f) v[f] = v[f] + from[f][more];
        }
#pragma unroll
        for (int f = 0; f < FEW; ++f)
            if (b0 + f < n_sample) out[(u64)(b0 + f) * width + target + i] = v[f];
    }
}

// Products: the logarithms of their children added from the left.
//
//   out[b, target + i] = values[b, rows[first[i]]] + ... + values[b, rows[first[i + 1] - 1]]
//
//   first (n_out + 1) i64, rows int; values (n_sample, n_row), out (n_sample, width) REAL, which may be one array
//
// Grid: (products / 256, samples), one thread a product.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/layers.py::product_forward
// op: rpukit.circuits.ops.product_forward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 1.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
product_forward(int n_sample, int n_out, int n_row, int width, int target, const i64 *first, const int *rows, const REAL *values,
                REAL *out) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n_out) return;
    i64 start = first[i], stop = first[i + 1];
    EACH_SAMPLE(b, n_sample) {
        const REAL *from = values + (u64)b * n_row;
        REAL v = from[rows[start]];
        for (i64 k = start + 1; k < stop; ++k) v = v + from[rows[k]];
        out[(u64)b * width + target + i] = v;
    }
}

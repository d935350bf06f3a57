// Propagate flows from products to their children: each row adds those of its products, ascending.
//
//   flows[b, used[i]] += above[b, target + back[k]],  k from back_first[i] to back_first[i + 1] - 1
//
//   used (n_used), back int, back_first (n_used + 1) i64
//   above (n_sample, width), flows (n_sample, n_row) REAL, which may be one array
//
// Grid: (rows / 256, samples / FEW or less), one thread a row.
// Macros: REAL, FEW.
// mirror: rpukit/circuits/_mirror/layers.py::product_backward
// op: rpukit.circuits.ops.layers.product_backward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: FEW=4
// source: docs/semantics/circuits.md, section 2.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
product_backward(int n_sample, int n_used, int width, int n_row, int target, const int *used, const i64 *back_first,
                 const int *back, const REAL *above, REAL *flows) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n_used) return;
    i64 start = back_first[i], stop = back_first[i + 1];
    int row = used[i], one = start < stop ? back[start] : 0;
    FEW_SAMPLES(b0, n_sample) {
        const REAL *from[FEW];
        REAL v[FEW];
#pragma unroll
        for (int f = 0; f < FEW; ++f) {
            int b = min(b0 + f, n_sample - 1);
            from[f] = above + (u64)b * width + target, v[f] = flows[(u64)b * n_row + row];
        }
        if (start < stop)
#pragma unroll
            for (int f = 0; f < FEW; ++f) v[f] = v[f] + from[f][one];
        for (i64 k = start + 1; k < stop; ++k) {
            int more = back[k];
#pragma unroll
            for (int f = 0; f < FEW; ++f) v[f] = v[f] + from[f][more];
        }
#pragma unroll
        for (int f = 0; f < FEW; ++f)
            if (b0 + f < n_sample) flows[(u64)(b0 + f) * n_row + row] = v[f];
    }
}

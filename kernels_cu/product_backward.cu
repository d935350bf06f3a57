// Flows of products go on to their children: each row adds those of its products, ascending.
//
//   flows[b, used[i]] += above[b, target + back[k]],  k from back_first[i] to back_first[i + 1] - 1
//
//   used (n_used), back int, back_first (n_used + 1) i64
//   above (n_sample, width), flows (n_sample, n_row) REAL, which may be one array
//
// Grid: (rows / 256, samples), one thread a row.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/layers.py::product_backward
// op: rpukit.circuits.ops.product_backward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 2.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
product_backward(int n_sample, int n_used, int width, int n_row, int target, const int *used, const i64 *back_first,
                 const int *back, const REAL *above, REAL *flows) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n_used) return;
    i64 start = back_first[i], stop = back_first[i + 1];
    EACH_SAMPLE(b, n_sample) {
        REAL *at = flows + (u64)b * n_row + used[i], f = *at;
        for (i64 k = start; k < stop; ++k) f = f + above[(u64)b * width + target + back[k]];
        *at = f;
    }
}

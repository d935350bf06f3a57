// Initialise a downward pass with the flows of the roots, 0 for all other rows, and return the values of the roots.
//
//   flow of a row = sum over roots k, ascending, that are this row, of weights[b, k]; 0 where the row, rounded to REAL, is impossible
//
//   roots (n_root) int, rows, from `first` on; rows before `start` are left as they are; weights, out (n_sample, n_root) REAL
//   values (n_sample, n_row) double, flows likewise REAL
//
// Grid: (rows / 256, samples or less), one thread a row.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/layers.py::root_flows
// op: rpukit.circuits.ops.layers.root_flows
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 2.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
root_flows(int n_sample, int n_row, int n_root, int start, int first, const int *roots, const REAL *weights, const double *values,
           REAL *flows, REAL *out) {
    int r = start + blockIdx.x * 256 + threadIdx.x;
    if (r >= n_row) return;
    wait_for_earlier();
    EACH_SAMPLE(b, n_sample) {
        const REAL *weight = weights + (u64)b * n_root;
        const double *value = values + (u64)b * n_row;
        REAL flow = (REAL)0;
        if (r >= first)
            for (int k = 0; k < n_root; ++k)
                if (roots[k] == r && (REAL)value[r] > NOTHING) flow = flow + weight[k];
        flows[(u64)b * n_row + r] = flow;
        for (int k = r - start; k < n_root; k += n_row - start) out[(u64)b * n_root + k] = (REAL)value[roots[k]];
    }
}

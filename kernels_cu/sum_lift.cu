// Log flow minus log-value of sum nodes (lift): the factor that a parent passes on, apart from the child's value.
//
//   values, lift (n_sample, n_row) double, flows likewise REAL; rows first to last - 1; -inf where there is no flow
//
// Grid: (rows / 256, samples), one thread a row.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/layers.py::sum_lift
// op: rpukit.circuits.ops.layers.sum_lift
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 2.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
sum_lift(int n_sample, int n_row, int first, int last, const double *values, const REAL *flows, double *lift) {
    int r = first + blockIdx.x * 256 + threadIdx.x;
    if (r >= last) return;
    EACH_SAMPLE(b, n_sample) {
        u64 at = (u64)b * n_row + r;
        double v = values[at];
        REAL f = flows[at];
        lift[at] = f > (REAL)0 && v > IMPOSSIBLE ? (double)rk_log(f) - v : IMPOSSIBLE;
    }
}

// Log-likelihoods of leaves under soft evidence: log sum_x soft[x] p(x), for unknown variables.
//
//   sizes, variable (n_leaf) int: values of a leaf's table, 0 for numbers; place (n_leaf) i64; table REAL: log p
//   codes (n_sample, n_variable) int, below 0 unknown; soft (n_sample, n_variable, most) REAL, values (n_sample, n_row) double
//
// Grid: (leaves / 256, samples), one thread a value; x ascending, multiplied and added.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/queries.py::leaf_soft
// op: rpukit.circuits.queries.soft_evidence.leaf_soft
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 4.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
leaf_soft(int n_sample, int n_leaf, int n_variable, int n_row, int most, const int *sizes, const int *variable, const i64 *place,
          const REAL *table, const int *codes, const REAL *soft, double *values) {
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= n_leaf || !sizes[r]) return;
    const REAL *own = table + place[r];
    EACH_SAMPLE(b, n_sample) {
        u64 at = (u64)b * n_variable + variable[r];
        if (codes[at] >= 0) continue;
        REAL total = (REAL)0;
        for (int x = 0; x < sizes[r]; ++x) total = total + soft[at * most + x] * rk_exp(own[x]);
        values[(u64)b * n_row + r] = rk_log(total);
    }
}

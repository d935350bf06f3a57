// Values of leaves: those of finite support from their table, the others from their parameters.
//
//   Gaussian  -z^2 / 2 - (log(2 pi) / 2 + log std);  Poisson  (x log rate - rate) - lgamma(x + 1)
//
//   kinds, variable, sizes (n_leaf) int; place (n_leaf) i64, of a node's table of so many values, or of its parameters
//   codes (n_sample, n_variable) int, below 0 missing; numbers (n_sample, n_variable) REAL, NaN missing
//   values (n_sample, n_row) REAL: leaves are the first columns; a missing one is log 1, one past a table
//   impossible
//
// Grid: (leaves / 256, samples), one thread a value.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::leaf_forward
// op: rpukit.circuits.ops.leaf_forward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 1.
#include "circuit_rows.cuh"
#include "rk_special64.cuh"

#define HALF_LOG_2PI ((REAL)0.9189385332046727)

extern "C" __global__ void __launch_bounds__(256)
leaf_forward(int n_sample, int n_leaf, int n_variable, int n_row, const int *kinds, const int *variable, const i64 *place,
             const int *sizes, const int *codes, const REAL *numbers, const REAL *table, const REAL *parameters, REAL *values) {
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= n_leaf) return;
    int kind = kinds[r], at = variable[r], size = sizes[r];
    i64 p = place[r];
    wait_for_earlier();
    EACH_SAMPLE(b, n_sample) {
        REAL v;
        if (kind < GAUSSIAN) {
            int x = codes[(u64)b * n_variable + at];
            v = x < 0 ? (REAL)0 : x < size ? table[p + x] : NOTHING;
        } else {
            REAL x = numbers[(u64)b * n_variable + at];
            if (x != x) {
                v = (REAL)0;
            } else if (kind == GAUSSIAN) {
                REAL z = (x - parameters[p]) / parameters[p + 1];
                v = (REAL)-0.5 * (z * z) - (HALF_LOG_2PI + rk_log(parameters[p + 1]));
            } else {
                v = (times_log(x, parameters[p]) - parameters[p]) - rk_lgamma(x + (REAL)1);
            }
        }
        values[(u64)b * n_row + r] = v;
    }
}

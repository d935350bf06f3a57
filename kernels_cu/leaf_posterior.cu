// Posterior of unknown variables, P(variable = value | what is known): flows of a variable's leaves times their
// probabilities.
//
//   out[b, v, x] = sum over the leaves of v, ascending, of flow exp(table[x]), divided by the sum over x; one where known
//
//   row_first (n_variable + 1), rows int: leaves of each variable that are tables; place (n_leaf) i64; sizes (n_leaf),
//   support (n_variable) int: values of a table, and most of a variable
//   codes (n_sample, n_variable) int, below 0 unknown; flows (n_sample, n_row), out (n_sample, n_variable, most) REAL, 0 before
//
// Grid: (n_variable, samples), 128 threads, a value each. Order: one chain over the leaves; values added ascending.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/queries.py::leaf_posterior
// op: rpukit.circuits.ops.layers.leaf_posterior
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 4.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(128)
leaf_posterior(int n_sample, int n_variable, int n_row, int most, const int *row_first, const int *rows, const i64 *place,
               const int *sizes, const int *support, const REAL *table, const int *codes, const REAL *flows, REAL *out) {
    __shared__ REAL whole;
    int v = blockIdx.x, n = support[v];
    EACH_SAMPLE(b, n_sample) {
        u64 at = (u64)b * n_variable + v;
        REAL *line = out + at * most;
        int known = codes[at];
        for (int x = threadIdx.x; x < n; x += 128) {
            REAL p = (REAL)0;
            for (int k = row_first[v]; known < 0 && k < row_first[v + 1]; ++k) {
                int r = rows[k];
                if (x < sizes[r]) p = rk_fma(flows[(u64)b * n_row + r], rk_exp(table[place[r] + x]), p);
            }
            line[x] = x == known ? (REAL)1 : p;
        }
        divide_by_sum<128>(line, n, known < 0, whole);
    }
}

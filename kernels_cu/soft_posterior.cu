// Posterior of unknown variables under soft evidence; as leaf_posterior where a variable is known.
//
//   out[b, v, x] = soft[x] times the sum over the leaves of v, ascending, of flow exp(-value) exp(table[x]), divided by
//   the sum over x; one where known
//
//   row_first (n_variable + 1), rows int: leaves of each variable that are tables; place (n_leaf) i64; sizes (n_leaf),
//   support (n_variable) int: values of a table, and most of a variable
//   codes (n_sample, n_variable) int, below 0 unknown; values (n_sample, n_row) double, flows likewise, soft, out (n_sample, n_variable,
//   most) REAL, out 0 before
//
// Grid: (n_variable, samples), 128 threads, a value each. Leaves and values ascending, multiplied and added.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/queries.py::soft_posterior
// op: rpukit.circuits.queries.soft_evidence.soft_posterior
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 4.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(128)
soft_posterior(int n_sample, int n_variable, int n_row, int most, const int *row_first, const int *rows, const i64 *place,
               const int *sizes, const int *support, const REAL *table, const int *codes, const double *values, const REAL *flows,
               const REAL *soft, REAL *out) {
    __shared__ REAL whole;
    int v = blockIdx.x, n = support[v];
    EACH_SAMPLE(b, n_sample) {
        u64 at = (u64)b * n_variable + v, own = (u64)b * n_row;
        REAL *line = out + at * most;
        int known = codes[at];
        for (int x = threadIdx.x; x < n; x += 128) {
            REAL p = (REAL)0;
            for (int k = row_first[v]; known < 0 && k < row_first[v + 1]; ++k) {
                int r = rows[k];
                REAL f = flows[own + r];
                if (f > (REAL)0 && x < sizes[r]) p = p + f * rk_exp((REAL)-values[own + r]) * rk_exp(table[place[r] + x]);
            }
            line[x] = known < 0 ? p * soft[at * most + x] : x == known ? (REAL)1 : (REAL)0;
        }
        divide_by_sum<128>(line, n, known < 0, whole);
    }
}

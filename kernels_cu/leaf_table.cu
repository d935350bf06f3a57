// Table of log-probabilities of leaves with finite support, a row of n_values a node.
//
//   CATEGORICAL log p[x];  BERNOULLI log p, log (1 - p);  BINOMIAL log of ways p^x (1 - p)^(n - x), in double;
//   DISCRETE_LOGISTIC log of what lies between the edges of bin x, not below -1000;  INDICATOR 0 or -inf
//
//   parameters (n_node, n_parameter), table (n_node, n_values)   REAL
//   c0, c1: lower edge and width of the bins
//
// One thread a value.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/leaves.py::leaf_table
// op: rpukit.circuits.ops.layers.leaf_table
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 1.
#include "circuit_rows.cuh"
#include "rk_special64.cuh"

#define FLOOR ((REAL)-1000)

extern "C" __global__ void __launch_bounds__(256)
leaf_table(u64 n, int n_values, int kind, int n_parameter, REAL c0, REAL c1, const REAL *parameters, REAL *table) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const REAL *p = parameters + i / n_values * n_parameter;
    const REAL one = (REAL)1;
    int x = (int)(i % n_values);
    REAL v;
    if (kind == CATEGORICAL) {
        v = rk_log(p[x]);
    } else if (kind == BERNOULLI) {
        v = rk_log(x ? p[0] : one - p[0]);
    } else if (kind == BINOMIAL) {
        double k = (double)x, rest = (double)(n_values - 1 - x), hit = (double)p[0];
        double ways = (rk_lgamma((double)n_values) - rk_lgamma(k + 1.0)) - rk_lgamma(rest + 1.0);
        v = (REAL)((ways + times_log(k, hit)) + times_log(rest, 1.0 - hit));
    } else if (kind == DISCRETE_LOGISTIC) {
        REAL low = rk_fma((REAL)x, c1, c0), above = one, below = (REAL)0;
        if (x < n_values - 1) above = rk_sigmoid(((low + c1) - p[0]) / p[1]);
        if (x > 0) below = rk_sigmoid((low - p[0]) / p[1]);
        v = rk_log(above - below);
        v = v > FLOOR ? v : FLOOR;
    } else {
        v = (REAL)x == p[0] ? (REAL)0 : NOTHING;
    }
    table[i] = v;
}

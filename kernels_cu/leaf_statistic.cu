// Accumulate the statistics of leaves that are evaluated by functions: one kind of leaf.
//
//   of each node: flow, flow t for each statistic t of x, and the flow of missing values
//
//   function: number of a built-in one in circuit_leaves.cuh; with STATISTIC that function, which a user registered
//   place, first_parameter (n_node) i64: where a node's statistics and parameters begin
//   use_first (n_node + 1) i64, use_row, use_variable int: rows that use a node, and their variables
//   numbers (n_sample, n_variable), parameters, flows (n_sample, n_row), chains REAL, totals double
//   position (1) i64: samples before; chains end as those of leaf_flow; c0, c1, c2: constants
//
// Grid: nodes / 32, one thread a node, steps (sample, use) one after another.
// Macros: REAL, STATISTIC; N_PARAMETER, N_STATISTIC: most parameters and statistics of a node.
// mirror: rpukit/circuits/_mirror/evaluated.py::leaf_statistic
// op: rpukit.circuits.ops.evaluated.leaf_statistic
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: STATISTIC=gamma_leaf_statistic
// source: docs/semantics/circuits.md, section 3.
#include "circuit_leaves.cuh"

#ifndef N_PARAMETER
#define N_PARAMETER 2
#endif
#ifndef N_STATISTIC
#define N_STATISTIC 3
#endif
#ifdef STATISTIC
#define SET_STATISTIC STATISTIC(x, p, c, t)
#else
#define SET_STATISTIC built_in_statistic(function, x, p, c, t)
#endif

extern "C" __global__ void __launch_bounds__(32)
leaf_statistic(int n_sample, int n_node, int n_variable, int n_row, int function, int n_parameter, int n_statistic, double c0, double c1,
               double c2, const i64 *position, const i64 *place, const i64 *first_parameter, const i64 *use_first,
               const int *use_row, const int *use_variable, const REAL *numbers, const REAL *parameters, const REAL *flows,
               REAL *chains, double *totals) {
    int n = blockIdx.x * 32 + threadIdx.x;
    if (n >= n_node) return;
    double p[N_PARAMETER], c[3] = {c0, c1, c2}, t[N_STATISTIC] = {};
    REAL own[N_STATISTIC + 1], missing;  // the flow, and flow t
    i64 at = place[n], first = use_first[n], last = at + n_statistic + 1;
    int uses = (int)(use_first[n + 1] - first), past = (int)(*position % BLOCK), step = past * uses;
#pragma unroll
    for (int k = 0; k < N_PARAMETER; ++k) p[k] = k < n_parameter ? (double)parameters[first_parameter[n] + k] : 0.0;
#pragma unroll
    for (int k = 0; k <= N_STATISTIC; ++k) own[k] = k <= n_statistic ? chains[at + k] : (REAL)0;
    missing = chains[last];
    auto end_chains = [&]() {
#pragma unroll
        for (int k = 0; k <= N_STATISTIC; ++k)
            if (k <= n_statistic) settle(own[k], totals[at + k]);
        settle(missing, totals[last]);
    };
    for (int b = 0; b < n_sample; ++b) {
        for (int u = 0; u < uses; ++u) {
            if (sizeof(REAL) == 4 && step && step % CHAIN == 0) end_chains();
            ++step;
            REAL f = flows[(u64)b * n_row + use_row[first + u]];
            double x = (double)numbers[(u64)b * n_variable + use_variable[first + u]];
            if (!(f > (REAL)0)) continue;
            if (x != x) {
                missing = missing + f;
                continue;
            }
            SET_STATISTIC;
            own[0] = own[0] + f;
#pragma unroll
            for (int k = 0; k < N_STATISTIC; ++k) own[k + 1] = rk_fma(f, (REAL)t[k], own[k + 1]);
        }
        if (++past == BLOCK) end_chains(), past = 0, step = 0;
    }
    if (sizeof(REAL) == 4 && step && step % CHAIN == 0) end_chains();
#pragma unroll
    for (int k = 0; k <= N_STATISTIC; ++k)
        if (k <= n_statistic) chains[at + k] = own[k];
    chains[last] = missing;
}

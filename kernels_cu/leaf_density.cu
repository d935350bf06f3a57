// Values of leaves that are evaluated by functions: one kind of leaf.
//
//   value = function(x, parameters, constants), in double; a missing x is log 1, NaN is impossible
//
//   function: number of a built-in one in circuit_leaves.cuh; with LEAF that function, which a user registered
//   rows, variable (n_leaf) int; place (n_leaf) i64, of a node's n_parameter parameters (REAL), up to N_PARAMETER
//   numbers (n_sample, n_variable) REAL, NaN missing; values (n_sample, n_row) double; c0, c1, c2: constants
//
// Grid: (leaves / 256, samples), one thread a leaf.
// Macros: REAL, LEAF, N_PARAMETER.
// mirror: rpukit/circuits/_mirror/evaluated.py::leaf_density
// op: rpukit.circuits.ops.evaluated.leaf_density
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: LEAF=geometric_leaf N_PARAMETER=1
// source: docs/semantics/circuits.md, section 1.
#include "circuit_leaves.cuh"

#ifndef N_PARAMETER
#define N_PARAMETER 2
#endif
#ifdef LEAF
#define LOG_DENSITY LEAF(x, p, c)
#else
#define LOG_DENSITY built_in_leaf(function, x, p, c)
#endif

extern "C" __global__ void __launch_bounds__(256)
leaf_density(int n_sample, int n_leaf, int n_variable, int n_row, int function, int n_parameter, double c0, double c1, double c2,
             const int *rows, const int *variable, const i64 *place, const REAL *numbers, const REAL *parameters,
             double *values) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n_leaf) return;
    double p[N_PARAMETER], c[3] = {c0, c1, c2};
#pragma unroll
    for (int k = 0; k < N_PARAMETER; ++k) p[k] = k < n_parameter ? (double)parameters[place[i] + k] : 0.0;
    EACH_SAMPLE(b, n_sample) {
        double x = (double)numbers[(u64)b * n_variable + variable[i]], v = 0.0;
        if (x == x) {
            v = LOG_DENSITY;
            v = v == v ? v : IMPOSSIBLE;
        }
        values[(u64)b * n_row + rows[i]] = v;
    }
}

// Values of leaves that are evaluated by functions: one kind of leaf.
//
//   value = LEAF(x, parameters, constants), in double; a missing x is log 1, NaN is impossible
//
//   rows, variable (n_leaf) int; place (n_leaf) i64, of a node's N_PARAMETER parameters (REAL)
//   numbers (n_sample, n_variable) REAL, NaN missing; values (n_sample, n_row) double; c0, c1, c2: constants
//
// Grid: (leaves / 256, samples), one thread a leaf.
// Macros: REAL, LEAF a function of circuit_leaves.cuh or a registered one, N_PARAMETER.
// mirror: rpukit/circuits/_mirror/evaluated.py::leaf_density
// op: rpukit.circuits.ops.evaluated.leaf_density
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: LEAF=negative_binomial_leaf
// check: LEAF=exponential_leaf
// check: LEAF=gamma_leaf N_PARAMETER=2
// check: LEAF=log_normal_leaf N_PARAMETER=2
// check: LEAF=von_mises_leaf N_PARAMETER=2
// check: LEAF=student_t_leaf N_PARAMETER=2
// source: docs/semantics/circuits.md, section 1.
#include "circuit_leaves.cuh"

#ifndef LEAF
#define LEAF geometric_leaf
#endif
#ifndef N_PARAMETER
#define N_PARAMETER 1
#endif

extern "C" __global__ void __launch_bounds__(256)
leaf_density(int n_sample, int n_leaf, int n_variable, int n_row, double c0, double c1, double c2, const int *rows, const int *variable,
             const i64 *place, const REAL *numbers, const REAL *parameters, double *values) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n_leaf) return;
    double p[N_PARAMETER], c[3] = {c0, c1, c2};
#pragma unroll
    for (int k = 0; k < N_PARAMETER; ++k) p[k] = (double)parameters[place[i] + k];
    EACH_SAMPLE(b, n_sample) {
        double x = (double)numbers[(u64)b * n_variable + variable[i]], v = 0.0;
        if (x == x) {
            v = LEAF(x, p, c);
            v = v == v ? v : IMPOSSIBLE;
        }
        values[(u64)b * n_row + rows[i]] = v;
    }
}

// A step of EM of a block of weights, in place: parameter = (1 - step) old + step new.
//
//   new = (w flow + p / n_child) / (sum over children of w flow, plus p), flow = total + chain, p the pseudocount
//
//   theta, chains (n_child, n_node) REAL, totals (n_child, n_node) double
//   keep_zeros: weights below 1e-12 become 0 and have no part in the pseudocount. A node without flow stays.
//
// One thread a node, children ascending, in double.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::sum_maximise
// op: rpukit.circuits.ops.sum_maximise
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Peharz, Gens, Pernkopf, Domingos, IEEE TPAMI 39, 2030 (2017).
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(32)
sum_maximise(int n_child, int n_node, double step, double pseudocount, int keep_zeros, const REAL *chains, const double *totals,
             REAL *theta) {
    int m = blockIdx.x * 32 + threadIdx.x;
    if (m >= n_node) return;
    double whole = 0.0, part = pseudocount / (double)n_child;
#pragma unroll 8
    for (int c = 0; c < n_child; ++c) {
        u64 i = (u64)c * n_node + m;
        double w = (double)theta[i], more = whole + w * (totals[i] + (double)chains[i]);
        if (keep_zeros) more = more + part;
        whole = keep_zeros && w < 1e-12 ? whole : more;
    }
    if (!keep_zeros) whole = whole + pseudocount;
    if (!(whole > 0.0)) return;
#pragma unroll 4
    for (int c = 0; c < n_child; ++c) {
        u64 i = (u64)c * n_node + m;
        double w = (double)theta[i], next = (w * (totals[i] + (double)chains[i]) + part) / whole;
        theta[i] = keep_zeros && w < 1e-12 ? (REAL)0 : (REAL)((1.0 - step) * w + step * next);
    }
}

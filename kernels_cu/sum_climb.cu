// Gradient step of the weights of sums: totals become counts exp(change), from which the EM step makes the new
// weights.
//
//   slope = w flow - w (sum over children of w flow), flow = total + chain; change as in circuit_climb.cuh
//
//   theta, chains (n_child, n_node) REAL, totals likewise double, and first, second (null for SGD)
//
// One thread a node, children ascending, in double.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/gradient.py::sum_climb
// op: rpukit.circuits.ops.gradient.sum_climb
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Kingma, Ba, "Adam", ICLR 2015.
#include "circuit_climb.cuh"

extern "C" __global__ void __launch_bounds__(32)
sum_climb(int n_child, int n_node, double weight, double rate, double momentum, double decay, double clip, double lack, double lack2,
          const REAL *theta, const REAL *chains, double *totals, double *first, double *second) {
    int m = blockIdx.x * 32 + threadIdx.x;
    if (m >= n_node) return;
    Climb climb{weight, rate, momentum, decay, clip, lack, lack2, first, second};
    double whole = 0.0;
#pragma unroll 4
    for (int c = 0; c < n_child; ++c) {
        u64 i = (u64)c * n_node + m;
        whole = whole + (double)theta[i] * (totals[i] + (double)chains[i]);
    }
    for (int c = 0; c < n_child; ++c) {
        u64 i = (u64)c * n_node + m;
        double w = (double)theta[i], count = w * (totals[i] + (double)chains[i]);
        totals[i] = rk_exp(climb.step(i, count - whole * w));
    }
}

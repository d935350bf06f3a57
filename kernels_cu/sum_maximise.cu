// A step of EM of all weights, in place: parameter = (1 - step) old + step new.
//
//   new = (w flow + p / n_child) / (sum over children of w flow, plus p), flow = total + chain, p the pseudocount
//
//   theta, chains REAL, totals double: of block k (n_child, n_node), from block_theta[k] on; its sizes are those of
//   its first use, block_first[k]; tile_block, tile_node (n_tile) int: blocks, and their nodes from which on 32 are dealt with
//   keep_zeros: weights below 1e-12 become 0 and have no part in the pseudocount. A node without flow stays.
//
// Grid: tiles; one thread a node, children ascending, in double.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::sum_maximise
// op: rpukit.circuits.steps.sum_maximise
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Peharz, Gens, Pernkopf, Domingos, IEEE TPAMI 39, 2030 (2017).
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(32)
sum_maximise(double step, double pseudocount, int keep_zeros, const i64 *block_theta, const int *block_first, const int *size,
             const int *count, const int *tile_block, const int *tile_node, const REAL *chains, const double *totals,
             REAL *theta) {
    int k = tile_block[blockIdx.x], m = tile_node[blockIdx.x] + threadIdx.x;
    int n_child = count[block_first[k]], n_node = size[block_first[k]];
    if (m >= n_node) return;
    double whole = 0.0, part = pseudocount / (double)n_child;
    chains += block_theta[k];
    totals += block_theta[k];
    theta += block_theta[k];
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

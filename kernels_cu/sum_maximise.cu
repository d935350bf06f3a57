// EM step of the weights of sums, in place: parameter = (1 - step) old + step new.
//
//   new = (w flow + p / n_child) / (sum over children of w flow, plus p), flow = total + chain, p the pseudocount
//
//   theta, chains REAL, totals double: of block k (n_child, n_node), from block_theta[k] on; its sizes are those of
//   its first use, block_first[k]; tile_block, tile_node (n_tile) int: blocks, and the first of the 32 nodes of a tile
//   keep_zeros: weights below 1e-12 become 0 and have no part in the pseudocount. A node without flow stays.
//
// Grid: tiles; 8 warps a block, a lane a node: all warps read 64 children each time, the first one adds them, children
// ascending, in double.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::sum_maximise
// op: rpukit.circuits.ops.em.sum_maximise
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Peharz, Gens, Pernkopf, Domingos, IEEE TPAMI 39, 2030 (2017).
#include "circuit_rows.cuh"

#define CHILDREN 64  // that are read at a time
#define WARPS 8

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
sum_maximise(double step, double pseudocount, int keep_zeros, const i64 *block_theta, const int *block_first, const int *size,
             const int *count, const int *tile_block, const int *tile_node, const REAL *chains, const double *totals,
             REAL *theta) {
    __shared__ double terms[2][CHILDREN][32], wholes[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = tile_block[blockIdx.x];
    int n_child = count[block_first[k]], n_node = size[block_first[k]], m = tile_node[blockIdx.x] + lane;
    bool here = m < n_node;
    u64 at = (u64)block_theta[k] + m;
    double whole = 0.0, part = pseudocount / (double)n_child;
    for (int c0 = 0, turn = 0; c0 < n_child; c0 += CHILDREN, turn ^= 1) {
#pragma unroll
        for (int j = 0; j < CHILDREN / WARPS; ++j) {
            int c = c0 + warp + WARPS * j;
            double term = -1.0;  // adds nothing
            if (here && c < n_child) {
                u64 i = at + (u64)c * n_node;
                double w = (double)theta[i];
                if (!(keep_zeros && w < 1e-12)) term = w * (totals[i] + (double)chains[i]);
            }
            terms[turn][warp + WARPS * j][lane] = term;
        }
        __syncthreads();
        if (warp == 0) {
#pragma unroll 16
            for (int c = 0; c < CHILDREN; ++c) {
                double term = terms[turn][c][lane], more = whole + term;
                if (keep_zeros) more = more + part;
                whole = term < 0.0 ? whole : more;
            }
        }
    }
    if (warp == 0) wholes[lane] = keep_zeros ? whole : whole + pseudocount;
    __syncthreads();
    whole = wholes[lane];
    if (!here || !(whole > 0.0)) return;
#pragma unroll 4
    for (int c = warp; c < n_child; c += WARPS) {
        u64 i = at + (u64)c * n_node;
        double w = (double)theta[i], next = (w * (totals[i] + (double)chains[i]) + part) / whole;
        theta[i] = keep_zeros && w < 1e-12 ? (REAL)0 : (REAL)((1.0 - step) * w + step * next);
    }
}

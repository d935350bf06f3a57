// Go on with the statistics of leaves, over the steps (sample, use of a node's parameters).
//
//   of a table: flow for each value; of numbers: sums of flow x, flow x^2, flow; last the flow of missing values
//
//   kinds, n_statistic (n_node) int, place i64: where a node's statistics begin
//   use_first (n_node + 1) i64, use_row int: rows that use a node; variable int: of a row
//   codes int, numbers REAL (n_sample, n_variable), flows (n_sample, n_row) REAL; chains REAL, totals double
//   `position`: samples before; after every BLOCK-th sample the chains go to the totals and start anew.
//
// Grid: (nodes / 32, parts / 8), blocks of 32 x 8 threads. A thread has the values x of a node with x % parts its number.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::leaf_flow
// op: rpukit.circuits.ops.leaf_flow
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
leaf_flow(int n_sample, int n_node, int n_variable, int n_row, i64 position, const int *kinds, const int *n_statistic,
          const i64 *use_first, const int *use_row, const int *variable, const i64 *place, const int *codes,
          const REAL *numbers, const REAL *flows, REAL *chains, double *totals) {
    int n = blockIdx.x * 32 + threadIdx.x, part = blockIdx.y * blockDim.y + threadIdx.y, parts = gridDim.y * blockDim.y;
    if (n >= n_node) return;
    bool table = kinds[n] < GAUSSIAN;
    int missing = n_statistic[n];
    REAL *line = chains + place[n];
    i64 start = use_first[n], stop = use_first[n + 1];
    for (int b = 0; b < n_sample; ++b) {
        for (i64 u = start; u < stop; ++u) {
            int r = use_row[u], at = variable[r], i = 0;
            if (table) {
                int x = codes[(u64)b * n_variable + at];
                i = x < 0 ? missing : x;
            }
            if (i % parts != part) continue;
            REAL f = flows[(u64)b * n_row + r];
            if (!(f > (REAL)0)) continue;
            if (table) {
                line[i] = line[i] + f;
                continue;
            }
            REAL v = numbers[(u64)b * n_variable + at];
            if (v != v) {
                line[3] = line[3] + f;
            } else {
                line[0] = rk_fma(f, v, line[0]);
                line[1] = rk_fma(f, v * v, line[1]);
                line[2] = line[2] + f;
            }
        }
        if ((position + b + 1) % BLOCK == 0) {
            if (table)
                for (int i = part; i <= missing; i += parts) settle(line[i], totals[place[n] + i]);
            else if (part == 0)
                for (int i = 0; i <= missing; ++i) settle(line[i], totals[place[n] + i]);
        }
    }
}

// Go on with the statistics of leaves, over the steps (sample, use of a node's parameters).
//
//   of a table: flow for each value; of numbers: sums of flow x, flow x^2, flow; last the flow of missing values
//
//   kinds, n_statistic (n_node) int, place i64: where a node's statistics begin
//   use_first (n_node + 1) i64, use_row int: rows that use a node; variable int: of a row
//   tile_first, tile_size (n_tile) int: up to 32 nodes of one vector
//   codes int, numbers REAL (n_sample, n_variable), flows (n_sample, n_row) REAL; chains REAL, totals double
//   position (1) i64: samples before; after every BLOCK-th sample the chains go to the totals and start anew.
//
// Grid: (n_tile, parts / 8), blocks of 8 warps. The lanes of a warp are the nodes of a tile; it has the values x with
// x % parts its number, and finds their steps 32 at a time.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::leaf_flow
// op: rpukit.circuits.ops.leaf_flow
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"

// End a block of samples for a part of the values of a node.
__device__ __forceinline__ void settle_line(REAL *line, double *total, int n, bool table, int part, int parts) {
    int step = table ? parts : 1;
    if (!table && part) return;
    for (int i = part; i <= n; i += step) settle(line[i], total[i]);
}

extern "C" __global__ void __launch_bounds__(256, 1)
leaf_flow(int n_sample, int n_variable, int n_row, const i64 *position, const int *kinds, const int *n_statistic, const i64 *use_first,
          const int *use_row, const int *variable, const i64 *place, const int *tile_first, const int *tile_size,
          const int *codes, const REAL *numbers, const REAL *flows, REAL *chains, double *totals) {
    int lane = threadIdx.x % 32, part = blockIdx.y * 8 + threadIdx.x / 32, parts = gridDim.y * 8;
    int n0 = tile_first[blockIdx.x], missing = n_statistic[n0], n = n0 + min(lane, tile_size[blockIdx.x] - 1);
    bool own = lane < tile_size[blockIdx.x], table = kinds[n0] < GAUSSIAN;
    i64 start = use_first[n], start0 = use_first[n0];
    int uses = (int)(use_first[n0 + 1] - start0), n_step = n_sample * uses;
    REAL *line = chains + place[n];
    double *total = totals + place[n];
    wait_for_earlier();
    i64 before = *position, block = before / BLOCK;
    for (int s0 = 0; s0 < n_step; s0 += 32) {
        int s = s0 + lane, b = s / uses, u = s % uses, i = -1;
        if (s < n_step) {
            i = 0;
            if (table) {
                int x = codes[(u64)b * n_variable + variable[use_row[start0 + u]]];
                i = x < 0 ? missing : x;
            }
        }
        for (u32 found = __ballot_sync(~0u, i >= 0 && i % parts == part); found; found &= found - 1) {
            int from = __ffs((int)found) - 1, at = __shfl_sync(~0u, i, from), q = s0 + from;
            b = q / uses;
            int r = use_row[start + q % uses];
            for (; block < (before + b) / BLOCK; ++block)
                if (own) settle_line(line, total, missing, table, part, parts);
            REAL f = flows[(u64)b * n_row + r];
            if (!own || !(f > (REAL)0)) continue;
            if (table) {
                line[at] = line[at] + f;
                continue;
            }
            REAL v = numbers[(u64)b * n_variable + variable[r]];
            if (v != v) {
                line[3] = line[3] + f;
            } else {
                line[0] = rk_fma(f, v, line[0]);
                line[1] = rk_fma(f, v * v, line[1]);
                line[2] = line[2] + f;
            }
        }
    }
    for (; block < (before + n_sample) / BLOCK; ++block)
        if (own) settle_line(line, total, missing, table, part, parts);
}

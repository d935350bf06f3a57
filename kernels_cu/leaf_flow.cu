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
// x % parts its number. It lists their steps among the next SCAN, and then takes TOGETHER at a time.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::leaf_flow
// op: rpukit.circuits.ops.leaf_flow
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"

#define SCAN 512
#define TOGETHER 4

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
    __shared__ int steps[8][SCAN], places[8][SCAN];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = blockIdx.y * 8 + warp, parts = gridDim.y * 8;
    int n0 = tile_first[blockIdx.x], missing = n_statistic[n0], n = n0 + min(lane, tile_size[blockIdx.x] - 1);
    bool own = lane < tile_size[blockIdx.x], table = kinds[n0] < GAUSSIAN;
    i64 start = use_first[n], start0 = use_first[n0];
    int uses = (int)(use_first[n0 + 1] - start0), n_step = n_sample * uses;
    REAL *line = chains + place[n];
    double *total = totals + place[n];
    wait_for_earlier();
    i64 before = *position, block = before / BLOCK;
    for (int s0 = 0; s0 < n_step; s0 += SCAN) {
        int n_found = 0;
#pragma unroll 4
        for (int c = 0; c < SCAN; c += 32) {
            int s = s0 + c + lane, b = s / uses, u = s % uses, i = -1;
            if (s < n_step) i = table ? codes[(u64)b * n_variable + variable[use_row[start0 + u]]] : 0;
            i = s < n_step && i < 0 ? missing : table && i >= missing ? -1 : i;  // of other leaves alone
            u32 found = __ballot_sync(~0u, i >= 0 && i % parts == part), mine = 1u << lane;
            if (found & mine) {
                int at = n_found + __popc(found & (mine - 1));
                steps[warp][at] = s;
                places[warp][at] = i;
            }
            n_found += __popc(found);
        }
        __syncwarp();
        for (int k = 0, n_now; k < n_found; k += n_now) {
            i64 here = (before + steps[warp][k] / uses) / BLOCK;
            for (; block < here; ++block)
                if (own) settle_line(line, total, missing, table, part, parts);
            for (n_now = 1; table && n_now < TOGETHER && k + n_now < n_found; ++n_now)  // up to the end of a block
                if ((before + steps[warp][k + n_now] / uses) / BLOCK != here) break;
            REAL f[TOGETHER], sum[TOGETHER];
            int at[TOGETHER], row[TOGETHER], sample[TOGETHER];
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j) {
                int q = steps[warp][k + (j < n_now ? j : 0)];
                at[j] = places[warp][k + (j < n_now ? j : 0)];
                sample[j] = q / uses;
                row[j] = use_row[start + q % uses];
            }
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j) {
                f[j] = own && j < n_now ? flows[(u64)sample[j] * n_row + row[j]] : (REAL)0;
                sum[j] = table ? line[at[j]] : (REAL)0;
            }
            if (table) {
#pragma unroll
                for (int j = 0; j < TOGETHER; ++j) {
#pragma unroll
                    for (int x = 0; x < j; ++x) sum[j] = at[x] == at[j] ? sum[x] : sum[j];  // the last of its value
                    if (f[j] > (REAL)0) line[at[j]] = sum[j] = sum[j] + f[j];
                }
            } else if (f[0] > (REAL)0) {
                REAL v = numbers[(u64)sample[0] * n_variable + variable[row[0]]];
                if (v != v) {
                    line[3] = line[3] + f[0];
                } else {
                    line[0] = rk_fma(f[0], v, line[0]);
                    line[1] = rk_fma(f[0], v * v, line[1]);
                    line[2] = line[2] + f[0];
                }
            }
        }
        __syncwarp();  // before the list is written again
    }
    for (; block < (before + n_sample) / BLOCK; ++block)
        if (own) settle_line(line, total, missing, table, part, parts);
}

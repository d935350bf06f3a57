// Go on with the statistics of weights: F = fma(up, child, F) over the steps (sample, use), without the weight itself.
//
//   block_theta i64 (n_block), block_use int (n_block + 1): first weight and first use of a block of weights (child, node)
//   use_row, use_size, use_count int, use_x i64 (n_use); up (n_sample, n_row), child (n_sample, n_x) REAL, wide u8: see
//   flow_steps.cu. Where a step is wide each edge that has a weight adds exp(lift + value).
//   tile_block (n_tile), tile_place (n_tile, 2) int: 64 children and nodes of a block
//   theta, chains REAL, totals double: in the order of the weights. `position`: samples before; after every BLOCK-th
//   sample the chains go to the totals and start anew.
//
// Grid: n_tile, 256 threads of 4 x 4 weights. Order: samples, then uses, ascending.
// Macros: REAL, DEPTH (steps in shared memory at a time).
// mirror: rpukit/circuits/_mirror/learning.py::sum_flow
// op: rpukit.circuits.ops.sum_flow
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"

#ifndef DEPTH
#define DEPTH 16
#endif
#define TILE 64
#define EACH 4
#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS, 1)
sum_flow(int n_sample, int n_use, int n_row, i64 n_x, i64 position, const i64 *block_theta, const int *block_use, const int *use_row,
         const int *use_size, const int *use_count, const i64 *use_x, const int *tile_block, const int *tile_place,
         const REAL *theta, const REAL *up, const REAL *child, const unsigned char *wide, REAL *chains, double *totals) {
    __shared__ REAL above[DEPTH][TILE], below[DEPTH][TILE];
    __shared__ int far[DEPTH];
    int k = tile_block[blockIdx.x], c0 = tile_place[2 * blockIdx.x], m0 = tile_place[2 * blockIdx.x + 1];
    int first = block_use[k], uses = block_use[k + 1] - first, size = use_size[first], count = use_count[first];
    int i = threadIdx.x / 16 * EACH, j = threadIdx.x % 16 * EACH;
    u64 base = block_theta[k] + (u64)(c0 + i) * size + m0 + j;
    REAL f[EACH][EACH];
#pragma unroll
    for (int x = 0; x < EACH * EACH; ++x) {
        int p = x / EACH, q = x % EACH;
        bool inside = c0 + i + p < count && m0 + j + q < size;
        f[p][q] = inside ? chains[base + (u64)p * size + q] : (REAL)0;
    }
    u32 n_step = (u32)n_sample * (u32)uses;
    for (u32 t0 = 0; t0 < n_step; t0 += DEPTH) {
        __syncthreads();
        for (int e = threadIdx.x; e < DEPTH * TILE; e += THREADS) {
            int d = e / TILE, x = e % TILE, u = first + (int)((t0 + d) % (u32)uses), b = (int)((t0 + d) / (u32)uses);
            bool inside = b < n_sample;
            above[d][x] = inside && m0 + x < size ? up[(u64)b * n_row + use_row[u] + m0 + x] : (REAL)0;
            below[d][x] = inside && c0 + x < count ? child[(u64)b * n_x + use_x[u] + c0 + x] : (REAL)0;
            if (x == 0) far[d] = inside && wide[(u64)b * n_use + u];
        }
        __syncthreads();
        int n = (int)min(n_step - t0, (u32)DEPTH);
        for (int d = 0; d < n; ++d) {
            if (far[d]) {
#pragma unroll
                for (int x = 0; x < EACH * EACH; ++x) {
                    int p = x / EACH, q = x % EACH;
                    bool inside = c0 + i + p < count && m0 + j + q < size;
                    if (inside && theta[base + (u64)p * size + q] > (REAL)0)
                        f[p][q] = f[p][q] + rk_exp(above[d][j + q] + below[d][i + p]);
                }
            } else {
#pragma unroll
                for (int x = 0; x < EACH * EACH; ++x)
                    f[x / EACH][x % EACH] = rk_fma(above[d][j + x % EACH], below[d][i + x / EACH], f[x / EACH][x % EACH]);
            }
            if ((t0 + d + 1) % (u32)uses == 0 && (position + (t0 + d) / (u32)uses + 1) % BLOCK == 0) {
#pragma unroll
                for (int x = 0; x < EACH * EACH; ++x) {
                    int p = x / EACH, q = x % EACH;
                    if (c0 + i + p < count && m0 + j + q < size) settle(f[p][q], totals[base + (u64)p * size + q]);
                }
            }
        }
    }
#pragma unroll
    for (int x = 0; x < EACH * EACH; ++x) {
        int p = x / EACH, q = x % EACH;
        if (c0 + i + p < count && m0 + j + q < size) chains[base + (u64)p * size + q] = f[p][q];
    }
}

// Go on with the statistics of weights: F = fma(up, child, F) over the steps (sample, use), without the weight itself.
//
//   block_theta i64 (n_block), block_use int (n_block + 1): first weight and first use of a block of weights (child, node)
//   use_row, use_size, use_count int, use_x i64 (n_use); up (n_sample, n_row), child (n_sample, n_x) REAL, wide u8: see
//   flow_steps.cu. Where a step is wide each edge that has a weight adds exp(lift + value).
//   tile_block (n_tile), tile_place (n_tile, 2) int: 64 children and nodes of a block
//   theta, chains REAL, totals double: in the order of the weights. position (1) i64: samples before; after every BLOCK-th
//   sample the chains go to the totals and start anew.
//
// Grid: n_tile, 128 threads of 8 x 4 weights. Order: samples, then uses, ascending. Steps come DEPTH at a time, the next
// ones while these are worked on.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::sum_flow
// op: rpukit.circuits.ops.sum_flow
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"

#define TILE 64
#define DEPTH 16
#define ROWS 8
#define COLUMNS 4
#define THREADS 128
#define EACH (DEPTH * TILE / THREADS)  // values of a thread of what comes next

struct __align__(4 * sizeof(REAL)) Four { REAL v[4]; };

extern "C" __global__ void __launch_bounds__(THREADS, 1)
sum_flow(int n_sample, int n_use, int n_row, i64 n_x, const i64 *position, const i64 *block_theta, const int *block_use, const int *use_row,
         const int *use_size, const int *use_count, const i64 *use_x, const int *tile_block, const int *tile_place,
         const REAL *theta, const REAL *up, const REAL *child, const unsigned char *wide, REAL *chains, double *totals) {
    __shared__ __align__(16) REAL above[2][DEPTH][TILE], below[2][DEPTH][TILE];
    __shared__ int far[2][DEPTH];
    int k = tile_block[blockIdx.x], c0 = tile_place[2 * blockIdx.x], m0 = tile_place[2 * blockIdx.x + 1];
    int first = block_use[k], uses = block_use[k + 1] - first, size = use_size[first], count = use_count[first];
    int i = threadIdx.x / 16 * ROWS, j = threadIdx.x % 16 * COLUMNS, x = threadIdx.x % TILE, d0 = threadIdx.x / TILE;
    int n_step = n_sample * uses;
    u64 base = block_theta[k] + (u64)(c0 + i) * size + m0 + j;
    auto inside = [&](int p, int q) { return c0 + i + p < count && m0 + j + q < size; };
    REAL f[ROWS][COLUMNS], next_up[EACH], next_child[EACH];
    int b = d0 / uses, u = d0 % uses;  // of the step that is asked for next
    int flag_b = threadIdx.x / uses, flag_u = threadIdx.x % uses;  // of that whose flag is
    unsigned char next_far = 0;
    auto move = [&](int &b, int &u, int steps) {
        for (u += steps; u >= uses; u -= uses) ++b;
    };
    auto ask = [&]() {
        int row[EACH], sample[EACH];
        i64 column[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            sample[e] = b;
            row[e] = use_row[first + u];
            column[e] = use_x[first + u];
            move(b, u, THREADS / TILE);
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            bool real = sample[e] < n_sample;
            next_up[e] = real && m0 + x < size ? up[(u64)sample[e] * n_row + row[e] + m0 + x] : (REAL)0;
            next_child[e] = real && c0 + x < count ? child[(u64)sample[e] * n_x + column[e] + c0 + x] : (REAL)0;
        }
        if (threadIdx.x < DEPTH) {
            next_far = flag_b < n_sample ? wide[(u64)flag_b * n_use + first + flag_u] : 0;
            move(flag_b, flag_u, DEPTH);
        }
    };
    auto put = [&](int to) {
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            int d = e * (THREADS / TILE) + d0;
            above[to][d][x] = next_up[e];
            below[to][d][x] = next_child[e];
        }
        if (threadIdx.x < DEPTH) far[to][threadIdx.x] = next_far;
    };
    wait_for_earlier();
    int settled = (int)(BLOCK - *position % BLOCK) * uses;  // steps before the chains are settled
#pragma unroll
    for (int z = 0; z < ROWS * COLUMNS; ++z)
        f[z / COLUMNS][z % COLUMNS] = inside(z / COLUMNS, z % COLUMNS) ? chains[base + (u64)(z / COLUMNS) * size + z % COLUMNS] : (REAL)0;
    ask();
    for (int t0 = 0, now = 0; t0 < n_step; t0 += DEPTH, now ^= 1) {
        put(now);
        __syncthreads();
        if (t0 + DEPTH < n_step) ask();
        int some_far = 0, n = min(DEPTH, n_step - t0);
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) some_far |= far[now][d];
        bool plain = !some_far && n == DEPTH && !(settled >= t0 + 1 && settled <= t0 + DEPTH);
        auto add = [&](int d) {
            REAL v[ROWS], w[COLUMNS];
#pragma unroll
            for (int z = 0; z < ROWS + COLUMNS; z += 4) {
                Four four = *(const Four *)(z < ROWS ? &below[now][d][i + z] : &above[now][d][j + z - ROWS]);
#pragma unroll
                for (int y = 0; y < 4; ++y) (z < ROWS ? v[(z + y) % ROWS] : w[y]) = four.v[y];
            }
#pragma unroll
            for (int z = 0; z < ROWS * COLUMNS; ++z)
                f[z / COLUMNS][z % COLUMNS] = rk_fma(w[z % COLUMNS], v[z / COLUMNS], f[z / COLUMNS][z % COLUMNS]);
        };
        if (plain) {
#pragma unroll
            for (int d = 0; d < DEPTH; ++d) add(d);
            continue;
        }
        for (int d = 0; d < n; ++d) {
            if (!far[now][d]) add(d);
#pragma unroll
            for (int z = 0; z < ROWS * COLUMNS; ++z) {
                int p = z / COLUMNS, q = z % COLUMNS;
                u64 at = base + (u64)p * size + q;
                if (far[now][d] && inside(p, q) && theta[at] > (REAL)0)
                    f[p][q] = f[p][q] + rk_exp(above[now][d][j + q] + below[now][d][i + p]);
                if (t0 + d + 1 == settled && inside(p, q)) settle(f[p][q], totals[at]);
            }
            if (t0 + d + 1 == settled) settled += BLOCK * uses;
        }
    }
#pragma unroll
    for (int z = 0; z < ROWS * COLUMNS; ++z)
        if (inside(z / COLUMNS, z % COLUMNS)) chains[base + (u64)(z / COLUMNS) * size + z % COLUMNS] = f[z / COLUMNS][z % COLUMNS];
}

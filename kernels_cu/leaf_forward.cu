// Log-likelihoods of leaves: finite support from their table, others from their parameters.
//
//   Gaussian  -z^2 / 2 - (log(2 pi) / 2 + log std);  Poisson  (x log rate - rate) - lgamma(x + 1), in double, since its terms
//   cancel; impossible where they overflow
//
//   kinds, variable, sizes (n_leaf) int; place (n_leaf) i64, of a node's table of so many values, or of its parameters
//   codes (n_sample, n_variable) int, below 0 missing; numbers (n_sample, n_variable) REAL, NaN missing
//   values (n_sample, n_row) double: leaves are the first columns; a missing one is log 1, one past a table
//   impossible
//
// Grid: (leaves / 256, samples / FEW or less), one thread a leaf; with HELD (leaves / 32, ...): a block of 8 warps loads 32
// tables of up to so many values into shared memory, and a warp has the leaves of a sample.
// PART: leaves share long tables; a block loads so many values of up to 32 tables, and a warp puts those that steps (sample, use)
// ask for. Grid: (n_tile, parts of the tables). use_first (n_node + 1) i64, use_row, tile_first, tile_size int: as in leaf_flow.cu.
// Macros: REAL, FEW, HELD, PART.
// mirror: rpukit/circuits/_mirror/leaves.py::leaf_forward
// op: rpukit.circuits.ops.layers.leaf_forward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: FEW=4
// check: FEW=4 HELD=256
// check: FEW=4 PART=256
// source: docs/semantics/circuits.md, section 1.
#include "circuit_rows.cuh"
#include "rk_special64.cuh"

#ifndef HELD
#define HELD 0
#endif
#ifndef PART
#define PART 0
#endif
#define HALF_LOG_2PI ((REAL)0.9189385332046727)

__device__ __forceinline__ REAL of_number(int kind, REAL x, const REAL *own) {
    if (x != x) return (REAL)0;
    if (kind == GAUSSIAN) {
        REAL z = (x - own[0]) / own[1];
        return (REAL)-0.5 * (z * z) - (HALF_LOG_2PI + rk_log(own[1]));
    }
    double n = (double)x, rate = (double)own[0], v = (times_log(n, rate) - rate) - rk_lgamma(n + 1.0);
    return v == v ? (REAL)v : NOTHING;
}

// The value of a leaf of a table.
__device__ __forceinline__ REAL of_code(int x, int size, const REAL *own) {
    return x < 0 ? (REAL)0 : x < size ? own[x] : NOTHING;
}

extern "C" __global__ void __launch_bounds__(256)
leaf_forward(int n_sample, int n_leaf, int n_variable, int n_row, const int *kinds, const int *variable, const i64 *place,
             const int *sizes, const int *codes, const REAL *numbers, const REAL *table, const REAL *parameters,
             const i64 *use_first, const int *use_row, const int *tile_first, const int *tile_size, double *values) {
#if PART
    constexpr int STRIDE = 33, LOADS = PART / 32;  // values of a node, and nodes of a value, are in different banks
    __shared__ REAL held[PART * STRIDE];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n0 = tile_first[blockIdx.x], n_node = tile_size[blockIdx.x];
    int uses = (int)(use_first[n0 + 1] - use_first[n0]), n_step = n_sample * uses;
    const int *rows = use_row + use_first[n0];  // of the first node; those of the others follow
    int size = sizes[rows[0]];
    const i64 *own = place + rows[0];
    wait_for_earlier();
    for (int first = blockIdx.y * PART; first < size; first += gridDim.y * PART) {
        int n_value = min(PART, size - first);
        for (int q = warp; q < n_node; q += 8) {
            const REAL *from = table + own[q] + first;
            REAL v[LOADS];  // loaded together
#pragma unroll
            for (int e = 0; e < LOADS; ++e) v[e] = lane + e * 32 < n_value ? from[lane + e * 32] : (REAL)0;
#pragma unroll
            for (int e = 0; e < LOADS; ++e) held[(lane + e * 32) * STRIDE + q] = v[e];
        }
        __syncthreads();
        for (int s0 = warp * 32 * FEW; s0 < n_step; s0 += 8 * 32 * FEW) {
            int x[FEW], row[FEW], b[FEW];
#pragma unroll
            for (int f = 0; f < FEW; ++f) {
                int s = min(s0 + f * 32 + lane, n_step - 1);
                b[f] = s / uses, row[f] = rows[s - b[f] * uses];
            }
#pragma unroll
            for (int f = 0; f < FEW; ++f) x[f] = codes[(u64)b[f] * n_variable + variable[row[f]]];
#pragma unroll
            for (int f = 0; f < FEW; ++f) {
                bool outside = x[f] < 0 || x[f] >= size, mine = outside ? first == 0 : x[f] >= first && x[f] < first + n_value;
                u32 left = __ballot_sync(~0u, mine && s0 + f * 32 + lane < n_step);
                while (left) {
                    int from = __ffs(left) - 1, value = __shfl_sync(~0u, x[f], from);
                    u64 at = (u64)__shfl_sync(~0u, b[f], from) * n_row + __shfl_sync(~0u, row[f], from) + lane;
                    left &= left - 1;
                    bool there = value >= 0 && value < size;
                    REAL v = there ? held[(value - first) * STRIDE + lane] : of_code(value, size, table);
                    if (lane < n_node) values[at] = v;
                }
            }
        }
        __syncthreads();  // before the next values are loaded
    }
#elif HELD
    __shared__ REAL held[32][HELD + 1];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r0 = blockIdx.x * 32, r = r0 + lane;
    int at = variable[min(r, n_leaf - 1)], size = sizes[min(r, n_leaf - 1)];
    wait_for_earlier();
#pragma unroll
    for (int l = warp; l < 32; l += 8) {
        bool there = r0 + l < n_leaf;
        int n = there ? sizes[r0 + l] : 0;
        const REAL *from = table + (there ? place[r0 + l] : 0);
        REAL v[HELD / 32];  // loaded together
#pragma unroll
        for (int e = 0; e < HELD / 32; ++e) v[e] = lane + e * 32 < n ? from[lane + e * 32] : (REAL)0;
#pragma unroll
        for (int e = 0; e < HELD / 32; ++e) held[l][lane + e * 32] = v[e];
    }
    __syncthreads();
    for (int b0 = (blockIdx.y * 8 + warp) * FEW; b0 < n_sample; b0 += gridDim.y * 8 * FEW) {
        int x[FEW];
#pragma unroll
        for (int f = 0; f < FEW; ++f) x[f] = codes[(u64)min(b0 + f, n_sample - 1) * n_variable + at];
#pragma unroll
        for (int f = 0; f < FEW; ++f)
            if (b0 + f < n_sample && r < n_leaf) values[(u64)(b0 + f) * n_row + r] = of_code(x[f], size, held[lane]);
    }
#else
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= n_leaf) return;
    int kind = kinds[r], at = variable[r], size = sizes[r];
    i64 p = place[r];
    wait_for_earlier();
    FEW_SAMPLES(b0, n_sample) {
        int line[FEW], x[FEW];
        REAL v[FEW];
#pragma unroll
        for (int f = 0; f < FEW; ++f) line[f] = min(b0 + f, n_sample - 1);
        if (kind < GAUSSIAN) {
#pragma unroll
            for (int f = 0; f < FEW; ++f) x[f] = codes[(u64)line[f] * n_variable + at];
#pragma unroll
            for (int f = 0; f < FEW; ++f) v[f] = of_code(x[f], size, table + p);
        } else {
#pragma unroll
            for (int f = 0; f < FEW; ++f) v[f] = of_number(kind, numbers[(u64)line[f] * n_variable + at], parameters + p);
        }
#pragma unroll
        for (int f = 0; f < FEW; ++f)
            if (b0 + f < n_sample) values[(u64)line[f] * n_row + r] = v[f];
    }
#endif
}

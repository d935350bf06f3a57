// Flows of the children of sum layers, on tensor cores: exp((e + M) + log S), (M, S) the mixture of
// the lifts of the parents.
//
//   groups, parents, elements, rows and flows as in sum_backward.cu; group_at (n_group) int, staged (n_sample, ld) u16, top, ld_top
//   and top_step: of tensor_stage.cu; group_words (n_group) i64, words u16: weights of round_weights.cu
//
// Grid: n_tile * (samples / BJ), tiles first; tile_first, tile_size (n_tile) int: up to BI adjacent elements of
// the same lists. A block has WI x WJ warps. Order: parents by group, ascending, combined from the left as pairs (largest,
// sum); nodes of each in steps of 16, ascending, one accumulator. A sum that is 0 or subnormal is made again in float32, as in
// sum_backward.cu.
// SPLIT: as in tensor_forward.cu.
// Macros: SPLIT, WIDTH, LIFT, TREE, SHARED (as in sum_backward.cu), BI, BJ, WI, WJ, ST (as in det_gemm_mma.cu).
// mirror: rpukit/circuits/_mirror/tensor.py::tensor_backward
// op: rpukit.circuits.ops.sum_tensor_core.tensor_backward
// bits: arch-exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: WIDTH=2 LIFT=0 BI=64 BJ=64 WI=4 WJ=2 ST=6
// check: WIDTH=2 LIFT=0 SHARED=1 BI=32 BJ=16 WI=2 WJ=1 ST=14
// check: WIDTH=2 LIFT=0 SPLIT=1 BI=128 BJ=64 WI=4 WJ=2 ST=3
// check: WIDTH=2 LIFT=0 TREE=1 SPLIT=1 BI=64 BJ=32 WI=4 WJ=2 ST=8
// source: docs/semantics/circuits.md, sections 5 and 6.
#define P_MN 0
#define Q_MN 0
#include "circuit_tensor.cuh"

#ifndef SHARED
#define SHARED 0
#endif
#define INTO (SHARED ? 0 : WIDTH)  // rows of an element whose flows are written
#ifndef TREE
#define TREE 0
#endif
#define APART (N_THREAD / BI)  // samples between those of a thread
#define TOGETHER (SPLIT ? 8 : 4)  // samples that are read at a time; the first ones, of pairs, before the sums are made

extern "C" __global__ void __launch_bounds__(N_THREAD, 1)
tensor_backward(int n_sample, int n_element, int n_row, int n_tile, int ld, int ld_top, int top_step, const int *group_row, const int *group_size,
                const i64 *group_theta, const i64 *group_words, const int *group_at, const i64 *parent_first, const int *parent_group,
                const int *parent_place, const int *element_rows, const int *tile_first, const int *tile_size, const float *theta,
                const double *values, const double *lift, const double *elements, const u16 *words, i64 words_apart, const u16 *staged, i64 staged_apart,
                const float *top, float *row_flows, float *flows) {
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ float largest[BJ], before[BJ], now[BJ];  // of the parents so far; what they, and those that come, are scaled by
    int tile = blockIdx.x % n_tile, sample0 = blockIdx.x / n_tile * BJ, n_j = min(BJ, n_sample - sample0);
    int e0 = tile_first[tile], n_i = tile_size[tile];
    i64 start = parent_first[e0], stop = parent_first[e0 + 1];
    Warp own = own_part();
    float total[MI][MJ][4], d[MI][MJ][4];
    int i = threadIdx.x % BI, e = e0 + min(i, n_i - 1), rows[WIDTH ? WIDTH : 1];
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) rows[k] = element_rows[(u64)e * WIDTH + k];
    double v[TOGETHER];
    auto read_values = [&](int j0) {
#pragma unroll
        for (int x = 0; x < TOGETHER; ++x) {
            u64 b = sample0 + min(j0 + x * APART, n_j - 1);
            v[x] = WIDTH ? product_of(rows, values + b * n_row) : elements[b * n_element + e];
        }
    };
    if (SPLIT) read_values(threadIdx.x / BI);  // no launch that is still under way writes them
    each_chain(own, [&](int x, int, int) { total[x / (4 * MJ)][x / 4 % MJ][x % 4] = 0.0f; });
    for (int j = threadIdx.x; j < BJ; j += N_THREAD) largest[j] = NOTHING;
    for (i64 p = start; p < stop; ++p) {
        int g = parent_group[p], size = group_size[g];
        make_chains(d, rk_shared_address(raw), own, words + group_words[g] + (u64)parent_place[p] * LINE_OF(size), LINE_OF(size), n_i,
                    staged + (u64)sample0 * ld + group_at[g], ld, n_j, size, words_apart, staged_apart, [&]() {
                        if (p == start) wait_for_earlier();
                        for (int j = threadIdx.x; j < BJ; j += N_THREAD) {
                            float old = largest[j], m = j < n_j ? top[(u64)(sample0 + j) * ld_top + g * top_step] : NOTHING, both = rk_max(old, m);
                            before[j] = old > NOTHING ? exp_below(old - both) : 0.0f;
                            now[j] = m > NOTHING ? exp_below(m - both) : 0.0f;
                            largest[j] = both;
                        }
                    });
        each_chain(own, [&](int x, int, int j) {
            float &sum = total[x / (4 * MJ)][x / 4 % MJ][x % 4];
            sum = rk_fma(sum, before[j], d[x / (4 * MJ)][x / 4 % MJ][x % 4] * now[j]);
        });
        __syncthreads();  // before the next parent's scales are written
    }
    if (start == stop) wait_for_earlier();
    float *area = (float *)raw;
    spread(total, area, own);
    Parents parents{parent_group, parent_place, group_row, group_size, group_theta, theta};
    u64 at0 = (u64)sample0 * n_row;
    Lifts lifts{LIFT ? nullptr : values + at0, LIFT ? lift + at0 : nullptr, LIFT ? nullptr : row_flows + at0, n_row, 0};
    if (i >= n_i) return;
    i64 parent = parent_first[e];
    for (int j0 = threadIdx.x / BI; j0 < n_j; j0 += TOGETHER * APART) {
        float f[TOGETHER], old[TOGETHER][INTO ? INTO : 1];  // all reads before the first write
        if (!SPLIT || j0 >= APART) read_values(j0);
#pragma unroll
        for (int x = 0; x < TOGETHER; ++x) {
            int j = min(j0 + x * APART, n_j - 1);
            u64 line = at0 + (u64)j * n_row;
#pragma unroll
            for (int k = 0; k < INTO; ++k) old[x][k] = TREE || rows[k] < 0 ? 0.0f : row_flows[line + rows[k]];
        }
#pragma unroll
        for (int x = 0; x < TOGETHER; ++x) {
            int j = min(j0 + x * APART, n_j - 1);
            f[x] = flow_of(v[x], area[j * LINE + i], largest[j], parents, parent, (int)(stop - start), j, lifts);
        }
#pragma unroll
        for (int x = 0; x < TOGETHER; ++x) {
            int j = j0 + x * APART;
            if (j >= n_j) break;
            if (!INTO) flows[(u64)(sample0 + j) * n_element + e] = f[x];
#pragma unroll
            for (int k = 0; k < INTO; ++k)
                if (rows[k] >= 0) row_flows[at0 + (u64)j * n_row + rows[k]] = old[x][k] + f[x];
        }
    }
}

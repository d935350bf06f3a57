// Log-values of sum nodes, on tensor cores: M + log sum_c theta16[c, m] exp16(e_c - M), M the largest child.
//
//   groups and lists as in sum_forward.cu; list_at (n_list) int, staged (n_sample, ld) u16, top (n_sample, n_list): of
//   tensor_stage.cu; group_words (n_group) i64, words u16: weights of round_weights.cu
//   values (n_sample, n_row), elements (n_sample, n_element) double, or with WIDTH their rows: for sums that are made again
//
// Grid: n_tile * (samples / BJ), tiles first; tile_group, tile_first (n_tile) int: BI nodes of a group. A block has WI x WJ
// warps. Order: children in steps of 16, ascending, one accumulator; a step is one operation of the tensor core. A sum that
// is 0 or subnormal is made again in float32, as in sum_forward.cu.
// SPLIT: weights and exponentials are pairs of words, the low ones words_apart and staged_apart after the high ones; one chain of
// each 64 children, added from the left.
// Macros: SPLIT, WIDTH, BI, BJ, WI, WJ, ST (as in det_gemm_mma.cu).
// mirror: rpukit/circuits/_mirror/tensor.py::tensor_forward
// op: rpukit.circuits.ops.sum_tensor_core.tensor_forward
// bits: arch-exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: WIDTH=2 BI=64 BJ=64 WI=4 WJ=2 ST=6
// check: WIDTH=2 BI=32 BJ=16 WI=2 WJ=1 ST=14
// check: WIDTH=2 SPLIT=1 BI=128 BJ=64 WI=4 WJ=2 ST=3
// check: WIDTH=2 SPLIT=1 BI=64 BJ=32 WI=4 WJ=2 ST=8
// source: docs/semantics/circuits.md, sections 5 and 6.
#define P_MN 1
#define Q_MN 0
#include "circuit_tensor.cuh"

extern "C" __global__ void __launch_bounds__(N_THREAD, 1)
tensor_forward(int n_sample, int n_element, int n_row, int n_tile, int ld, int n_list, const i64 *list_first, const int *list_elements,
               const int *list_rows, const int *list_at, const int *group_list, const int *group_row, const int *group_size,
               const i64 *group_theta, const i64 *group_words, const int *tile_group, const int *tile_first, const float *theta,
               const u16 *words, i64 words_apart, const u16 *staged, i64 staged_apart, const float *top, const double *elements, double *values) {
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ float largest[BJ];
    int tile = blockIdx.x % n_tile, sample0 = blockIdx.x / n_tile * BJ, n_j = min(BJ, n_sample - sample0);
    int g = tile_group[tile], node0 = tile_first[tile], size = group_size[g], list = group_list[g], n_i = min(BI, size - node0);
    i64 first = list_first[list];
    int n_child = (int)(list_first[list + 1] - first);
    u64 at = (u64)sample0 * (WIDTH ? n_row : n_element);
    Inputs input{WIDTH ? list_rows + first * WIDTH : list_elements + first, (WIDTH ? values : elements) + at, WIDTH ? n_row : n_element};
    Warp own = own_part();
    float d[MI][MJ][4];
    make_chains(d, rk_shared_address(raw), own, words + group_words[g] + node0, LINE_OF(size), n_i,
                staged + (u64)sample0 * ld + list_at[list], ld, n_j, n_child, words_apart, staged_apart, [&]() {
                    wait_for_earlier();
                    for (int j = threadIdx.x; j < n_j; j += N_THREAD) largest[j] = top[(u64)(sample0 + j) * n_list + list];
                });
    float *area = (float *)raw;
    spread(d, area, own);
    int i = threadIdx.x % BI;
    const float *weights = theta + group_theta[g] + node0 + i;
    double *out = values + (u64)sample0 * n_row + group_row[g] + node0 + i;
    if (i >= n_i) return;
#pragma unroll 4
    for (int j = threadIdx.x / BI; j < n_j; j += N_THREAD / BI)
        out[(u64)j * n_row] = value_of(area[j * LINE + i], largest[j], weights, size, n_child, j, input);
}

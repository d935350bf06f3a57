// Log-values of sum nodes (mixtures): node m of a group has log sum_c theta[c, m] exp(element c).
//
//   list_first (n_list + 1) i64, list_elements int: children of list i, elements of the layer
//   list_rows (children of all lists, WIDTH) int: their rows, -1 for none; without `elements` they are read there
//   group_list, group_row, group_size int, group_theta i64: of each group its list, first row, nodes, and weights
//   tile_group, tile_first (n_tile) int: OUTPUTS nodes of a group
//   theta: (child, node) for each group REAL; elements (n_sample, n_element), values (n_sample, n_row) double
//   STAGED: exponentials are read from w and top, (inputs, n_column) and (segments, n_column), where list_segment
//   (n_list + 1) int says which segments a list has; see sum_stage.cu
//
// Grid: n_tile * (samples / SAMPLES), tiles first; blocks as in circuit_mix.cuh, which says in what order is summed, or with STAGED as
// in circuit_tiles.cuh. A sum that is 0 or subnormal though a child is possible is made again with the largest value that has a weight.
// Macros: REAL, WIDTH, OUTPUTS, LANES, SAMPLES (powers of two; COLUMNS * LANES a multiple of 32); STAGED, ROWS, COLUMNS, VEC.
// mirror: rpukit/circuits/_mirror/layers.py::sum_forward
// op: rpukit.circuits.ops.layers.sum_forward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double SAMPLES=4
// check: WIDTH=2 OUTPUTS=8 SAMPLES=8
// check: STAGED=1 WIDTH=2 OUTPUTS=64 LANES=4 SAMPLES=64 VEC=4
// check: STAGED=1 OUTPUTS=16 LANES=16 SAMPLES=16 ROWS=4
// source: docs/semantics/circuits.md, section 1.
#include "circuit_own.cuh"

#ifndef STAGED
#define STAGED 0
#endif
#define ALONG 1
#if STAGED
#include "circuit_tiles.cuh"
#else
#include "circuit_mix.cuh"
#endif

#if STAGED
struct Spans {
    const REAL *weights;
    int size, first, n_child;
    __device__ __forceinline__ Span operator()(int s) const {
        return Span{weights + (u64)s * SEGMENT * size, size, first + s, max(0, min(SEGMENT, n_child - s * SEGMENT))};
    }
};
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
sum_forward(int n_sample, int n_element, int n_row, int n_tile, int n_column, const i64 *list_first, const int *list_elements,
            const int *list_rows, const int *list_segment,
            const int *group_list, const int *group_row, const int *group_size, const i64 *group_theta, const int *tile_group,
            const int *tile_first, const REAL *theta, const double *elements, const REAL *w, const REAL *top, double *values) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ Staged staged;
    Area &area = *(Area *)raw;
    int tile = blockIdx.x % n_tile;
    int g = tile_group[tile], node0 = tile_first[tile], size = group_size[g];
    int sample0 = blockIdx.x / n_tile * SAMPLES, samples = min(SAMPLES, n_sample - sample0), n_out = min(OUTPUTS, size - node0);
    i64 first = list_first[group_list[g]];
    int n_child = (int)(list_first[group_list[g] + 1] - first);
    const REAL *weights = theta + group_theta[g] + node0;
    u64 at = (u64)sample0 * (WIDTH ? n_row : n_element);
    Inputs input{WIDTH ? list_rows + first * WIDTH : list_elements + first, (WIDTH ? values : elements) + at, WIDTH ? n_row : n_element};
#if STAGED
    Mixture mixture;
    int n_segment = (n_child + SEGMENT - 1) / SEGMENT;
    Spans spans{weights, size, list_segment[group_list[g]], n_child};
    mix_staged(mixture, staged, area, min(SAMPLES, n_column - sample0), n_out, n_segment, w + sample0, top + sample0, n_column, spans);
#else
    Mixture mixture = begin_mixture(staged);
    mix(mixture, staged, area, samples, n_out, n_child, weights, 1, size, input);
#endif
    u64 again = 0;  // pairs
#pragma unroll TURNS
    for (int q = 0; q < PAIRS; ++q) {
        int p = threadIdx.x + q * THREADS, i = p % OUTPUTS, b = p / OUTPUTS;
        if (b >= samples || i >= n_out) continue;
        REAL largest = staged.largest[mixture.turn][b], total = total_of(mixture, q);
        double v = IMPOSSIBLE;
        if (total >= rk_tiny(total))
            v = (double)largest + (double)rk_log(total);
        else if (largest > NOTHING)
            again |= (u64)1 << q;
        values[(u64)(sample0 + b) * n_row + group_row[g] + node0 + i] = v;
    }
#pragma unroll(STAGED ? 1 : PAIRS)
    for (int q = 0; q < PAIRS; ++q) {
        int p = threadIdx.x + q * THREADS, i = p % OUTPUTS, b = p / OUTPUTS;
        if (!(again >> q & 1)) continue;
        double v = value_of(total_of(mixture, q), staged.largest[mixture.turn][b], weights + i, size, n_child, b, input);
        values[(u64)(sample0 + b) * n_row + group_row[g] + node0 + i] = v;
    }
}

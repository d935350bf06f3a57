// Flows of the children of sum layers: exp((e + M) + log S), (M, S) the mixture of the lifts of the parents.
//
//   groups as in sum_forward.cu; lift (n_sample, n_row), elements (n_sample, n_element) double; flows (n_sample, n_element) REAL
//   parent_first (n_element + 1) i64, parent_group, parent_place int: groups an element is in, ascending, and where
//   tile_first, tile_size (n_tile) int: adjacent elements of the same lists
//   WIDTH: elements are made of their rows, element_rows (n_element, WIDTH), -1 for none, in values (n_sample, n_row) double, and
//   their flows added to those of the rows, row_flows (n_sample, n_row) REAL: no row is in two elements
//   TREE: they are set, being in one element of all layers; SHARED: rows may be in several elements, whose flows go to `flows`
//   LIFT 0: there is no array of lifts, they are made of values and row_flows
//   STAGED: exponentials are read from w and top, as in sum_forward.cu; group_segment (n_group + 1) int
//
// Grid: n_tile * (samples / SAMPLES), tiles first; blocks as in circuit_mix.cuh or circuit_tiles.cuh. Order: parents by group, ascending, nodes of each in
// segments. A sum that is 0 or subnormal is made again with the largest lift that has a weight.
// Macros: REAL, WIDTH, LIFT, TREE, SHARED, VEC, OUTPUTS, LANES, SAMPLES (powers of two; COLUMNS * LANES a multiple of 32); STAGED, ROWS, COLUMNS.
// mirror: rpukit/circuits/_mirror/layers.py::sum_backward
// op: rpukit.circuits.ops.layers.sum_backward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double SAMPLES=4
// check: WIDTH=2 OUTPUTS=8 SAMPLES=8 LIFT=0 SHARED=1 VEC=4
// check: STAGED=1 WIDTH=2 OUTPUTS=64 LANES=4 SAMPLES=64 LIFT=0 TREE=1 VEC=4
// check: STAGED=1 WIDTH=4 OUTPUTS=64 LANES=4 SAMPLES=64 LIFT=0 VEC=4
// check: STAGED=1 WIDTH=6 OUTPUTS=64 LANES=4 SAMPLES=64 COLUMNS=8 LIFT=0 VEC=4
// check: STAGED=1 OUTPUTS=16 LANES=16 SAMPLES=16 ROWS=4
// source: docs/semantics/circuits.md, section 2.
#include "circuit_own.cuh"

#ifndef STAGED
#define STAGED 0
#endif
#ifndef SHARED
#define SHARED 0
#endif
#define INTO (SHARED ? 0 : WIDTH)  // rows of an element whose flows are written
#ifndef TREE
#define TREE 0
#endif
#define ALONG 0
#if STAGED
#include "circuit_tiles.cuh"
#else
#include "circuit_mix.cuh"
#endif

#if STAGED
// Segments of all parents, one parent after the other.
struct Spans {
    Parents of;
    const int *group_segment;
    i64 p, stop;
    int passed, n;  // segments of the parents before p, and of p
    Span start;  // of p
    __device__ __forceinline__ void begin() {
        n = 0;
        if (p >= stop) return;
        int g = of.group[p], size = of.size[g], first = group_segment[g];
        n = group_segment[g + 1] - first;
        start = Span{of.theta + of.theta_first[g] + (u64)of.place[p] * size, size, first, size};
    }
    __device__ __forceinline__ Span operator()(int s) {
        for (; p < stop && s - passed >= n; begin()) passed += n, ++p;
        int k = s - passed;
        if (p >= stop) return Span{of.theta, 0, 0, 0};
        return Span{start.weights + k * SEGMENT, start.step, start.number + k, min(SEGMENT, start.n - k * SEGMENT)};
    }
};
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
sum_backward(int n_sample, int n_element, int n_row, int n_tile, int n_column, const int *group_row, const int *group_size,
             const i64 *group_theta, const int *group_segment, const i64 *parent_first, const int *parent_group, const int *parent_place, const int *element_rows,
             const int *tile_first, const int *tile_size, const REAL *theta, const double *values, const double *lift,
             const double *elements, const REAL *w, const REAL *top, REAL *row_flows, REAL *flows) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ Staged staged;
    Area &area = *(Area *)raw;
    int tile = blockIdx.x % n_tile;
    int e0 = tile_first[tile], n_out = tile_size[tile];
    int sample0 = blockIdx.x / n_tile * SAMPLES, samples = min(SAMPLES, n_sample - sample0);
    i64 start = parent_first[e0], stop = parent_first[e0 + 1];
    Parents parents{parent_group, parent_place, group_row, group_size, group_theta, theta};
    u64 at0 = (u64)sample0 * n_row;
    Lifts lifts{LIFT ? nullptr : values + at0, LIFT ? lift + at0 : nullptr, LIFT ? nullptr : row_flows + at0, n_row, 0};
#if STAGED
    Mixture mixture;
    int n_segment = 0;
    for (i64 p = start; p < stop; ++p) n_segment += group_segment[parent_group[p] + 1] - group_segment[parent_group[p]];
    Spans spans{parents, group_segment, start, stop, 0, 0, {}};
    spans.begin();
    mix_staged(mixture, staged, area, min(SAMPLES, n_column - sample0), n_out, n_segment, w + sample0, top + sample0, n_column, spans);
#else
    Mixture mixture = begin_mixture(staged);
    for (i64 p = start; p < stop; ++p) {
        int g = parent_group[p], size = group_size[g];
        const REAL *weights = theta + group_theta[g] + (u64)parent_place[p] * size;
        Lifts above = lifts;
        above.row = group_row[g];
        mix(mixture, staged, area, samples, n_out, size, weights, size, 1, above);
    }
    wait_for_earlier();
    __syncthreads();  // for elements without parents; mix ends behind a barrier
#endif
    u64 again = 0;  // pairs
#pragma unroll 1
    for (int q0 = 0; q0 < PAIRS; q0 += TURNS) {
        constexpr int width = WIDTH ? WIDTH : 1;
        int row[TURNS][width];
        double v[TURNS];
        REAL old[TURNS][INTO ? INTO : 1];
#pragma unroll
        for (int x = 0; x < TURNS; ++x) {  // loaded together; a missing one is replaced by any valid address
            int p = threadIdx.x + (q0 + x) * THREADS, e = e0 + min(p % OUTPUTS, n_out - 1), b = sample0 + min(p / OUTPUTS, samples - 1);
            u64 line = (u64)b * n_row;
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) row[x][k] = element_rows[(u64)e * WIDTH + k];
            v[x] = WIDTH ? product_of(row[x], values + line) : elements[(u64)b * n_element + e];
#pragma unroll
            for (int k = 0; k < INTO; ++k) old[x][k] = TREE ? (REAL)0 : row_flows[line + max(row[x][k], 0)];
        }
#pragma unroll
        for (int x = 0; x < TURNS; ++x) {
            int p = threadIdx.x + (q0 + x) * THREADS, i = p % OUTPUTS, b = p / OUTPUTS;
            if (b >= samples || i >= n_out) continue;
            REAL largest = staged.largest[mixture.turn][b], total = total_of(mixture, q0 + x), f = (REAL)0;
            bool some = v[x] > IMPOSSIBLE && largest > NOTHING;
            if (some && !(total >= rk_tiny(total))) {
                again |= (u64)1 << (q0 + x);
                continue;
            }
            if (some) f = flow_by(v[x], largest, total);
            if (!INTO) flows[(u64)(sample0 + b) * n_element + e0 + i] = f;
#pragma unroll
            for (int k = 0; k < INTO; ++k)
                if (row[x][k] >= 0) row_flows[(u64)(sample0 + b) * n_row + row[x][k]] = old[x][k] + f;
        }
    }
#pragma unroll(STAGED ? 1 : PAIRS)
    for (int q = 0; q < PAIRS; ++q) {
        if (!(again >> q & 1)) continue;
        int p = threadIdx.x + q * THREADS, e = e0 + p % OUTPUTS, b = p / OUTPUTS;
        u64 at = (u64)(sample0 + b) * n_element + e, line = (u64)(sample0 + b) * n_row;
        const int *rows = element_rows + (u64)e * WIDTH;
        i64 own = parent_first[e];
        double v = WIDTH ? product_of(rows, values + line) : elements[at];
        REAL f = flow_of(v, total_of(mixture, q), staged.largest[mixture.turn][b], parents, own, (int)(stop - start), b, lifts);
        if (!INTO) flows[at] = f;
        for (int k = 0; k < INTO; ++k)
            if (rows[k] >= 0) row_flows[line + rows[k]] = (TREE ? (REAL)0 : row_flows[line + rows[k]]) + f;
    }
}

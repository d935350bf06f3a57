// Choose one child of each chosen sum, by sampling or by the largest term, and mark the rows of the child.
//
//   best 0: the first child whose running sum of theta exp(element - M) passes u times the whole sum, M the largest
//   element that has a weight; best 1: the child with the largest log theta + element, the first of equals
//
//   layer, tiles of 32 nodes and arrays as in sum_forward.cu; theta are logarithms if best; elements double
//   element_first (n_element + 1) i64, element_rows int: rows of each element; chosen (n_sample, n_row) u8
//
// Grid: (n_tile, samples), 32 threads, a node each; children ascending. Draw: op, index = row, sample, word 0.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/queries.py::choose_down
// op: rpukit.circuits.ops.layers.choose_down
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 4.
#include "circuit_rows.cuh"
#include "rk_philox.cuh"

struct Children {
    const REAL *weights;
    const double *elements;
    const int *ids;
    u64 step;
    int n;
    __device__ __forceinline__ REAL weight(int k) const { return weights[k * step]; }
    __device__ __forceinline__ double value(int k) const { return elements[ids[k]]; }
};

__device__ __forceinline__ int best_child(const Children &c) {
    double most = IMPOSSIBLE;
    int chosen = -1;
    for (int k = 0; k < c.n; ++k) {
        double v = (double)c.weight(k) + c.value(k);
        if (v > most) most = v, chosen = k;
    }
    return chosen;
}

__device__ __forceinline__ int drawn_child(const Children &c, REAL u) {
    double m = IMPOSSIBLE;
    REAL whole = (REAL)0, so_far = (REAL)0, last = (REAL)0;
    for (int k = 0; k < c.n; ++k)
        if (c.weight(k) > (REAL)0) m = rk_max(m, c.value(k));
    if (!(m > IMPOSSIBLE)) return -1;
    for (int k = 0; k < c.n; ++k)
        if (c.weight(k) > (REAL)0) whole = rk_fma(c.weight(k), rk_exp((REAL)(c.value(k) - m)), whole);
    REAL bar = u * whole;
    int chosen = -1;
    for (int k = 0; k < c.n; ++k) {
        if (c.weight(k) > (REAL)0) so_far = rk_fma(c.weight(k), rk_exp((REAL)(c.value(k) - m)), so_far);
        if (so_far > last) {  // a child with a positive weight
            chosen = k;
            if (so_far > bar) break;
            last = so_far;
        }
    }
    return chosen;
}

extern "C" __global__ void __launch_bounds__(32)
choose_down(int n_sample, int n_element, int n_row, int best, u64 first_sample, u32 op, const i64 *list_first,
            const int *list_elements, const int *group_list, const int *group_row, const int *group_size, const i64 *group_theta,
            const int *tile_group, const int *tile_first, const i64 *element_first, const int *element_rows, const REAL *theta,
            const double *elements, unsigned char *chosen, u32 key0, u32 key1) {
    int g = tile_group[blockIdx.x], m = tile_first[blockIdx.x] + threadIdx.x, size = group_size[g];
    if (m >= size) return;
    i64 first = list_first[group_list[g]];
    int row = group_row[g] + m, n = (int)(list_first[group_list[g] + 1] - first);
    EACH_SAMPLE(b, n_sample) {
        unsigned char *marks = chosen + (u64)b * n_row;
        if (!marks[row]) continue;
        Children c{theta + group_theta[g] + m, elements + (u64)b * n_element, list_elements + first, (u64)size, n};
        int k;
        if (best)
            k = best_child(c);
        else
            k = drawn_child(c, (REAL)rk_uniform(rk_block(make_uint2(key0, key1), op, (u64)row, first_sample + b, 0u).x));
        if (k < 0) continue;
        int e = c.ids[k];
        for (i64 i = element_first[e]; i < element_first[e + 1]; ++i) marks[element_rows[i]] = 1;
    }
}

// Flows of the elements of a layer of sums: exp((e + M) + log S), (M, S) the mixture of the lifts of the parents.
//
//   groups as in sum_forward.cu; lift (n_sample, n_row), elements, flows (n_sample, n_element)   REAL
//   parent_first (n_element + 1) i64, parent_group, parent_place int: groups an element is in, ascending, and where
//   tile_first, tile_size (n_tile) int: elements that stand side by side in the same lists
//
// Grid: (n_tile, samples / SAMPLES); blocks as in circuit_mix.cuh. Order: parents by group, ascending, nodes of each in
// segments. A sum that is 0 or subnormal is made again with the largest lift that has a weight.
// Macros: REAL, OUTPUTS, LANES, SAMPLES (OUTPUTS * LANES a multiple of 32, SAMPLES <= LANES).
// mirror: rpukit/circuits/_mirror/layers.py::sum_backward
// op: rpukit.circuits.ops.sum_backward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double SAMPLES=4
// check: SAMPLES=8
// source: docs/semantics/circuits.md, section 2.
#include "circuit_mix.cuh"

// log sum_m theta[e, m] exp(lift m) by the largest lift that has a weight.
__device__ __forceinline__ REAL own_parents(i64 start, i64 stop, const int *parent_group, const int *parent_place, const int *group_row,
                                         const int *group_size, const i64 *group_theta, const REAL *theta, const REAL *lift) {
    REAL m = NOTHING, total = (REAL)0;
    for (int pass = 0; pass < 2; ++pass) {
        for (i64 p = start; p < stop; ++p) {
            int g = parent_group[p], size = group_size[g];
            const REAL *weights = theta + group_theta[g] + (u64)parent_place[p] * size, *above = lift + group_row[g];
            for (int k = 0; k < size; ++k) {
                if (!(weights[k] > (REAL)0)) continue;
                if (pass)
                    total = rk_fma(weights[k], rk_exp(above[k] - m), total);
                else
                    m = rk_max(m, above[k]);
            }
        }
        if (!(m > NOTHING)) return NOTHING;
    }
    return m + rk_log(total);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
sum_backward(int n_sample, int n_element, int n_row, const int *group_row, const int *group_size, const i64 *group_theta,
             const i64 *parent_first, const int *parent_group, const int *parent_place, const int *tile_first,
             const int *tile_size, const REAL *theta, const REAL *lift, const REAL *elements, REAL *flows) {
    __shared__ Staged staged;
    int e0 = tile_first[blockIdx.x], n_out = tile_size[blockIdx.x];
    int sample0 = blockIdx.y * SAMPLES, samples = min(SAMPLES, n_sample - sample0);
    i64 start = parent_first[e0], stop = parent_first[e0 + 1];
    Mixture mixture = begin_mixture(staged);
    for (i64 p = start; p < stop; ++p) {
        int g = parent_group[p], size = group_size[g];
        const REAL *weights = theta + group_theta[g] + (u64)parent_place[p] * size;
        const REAL *above = lift + (u64)sample0 * n_row + group_row[g];
        mix(mixture, staged, samples, n_out, size, weights, size, 1, [&](int b, int k) { return above[(u64)b * n_row + k]; });
    }
    __syncthreads();
    int i = threadIdx.x % OUTPUTS, b = threadIdx.x / OUTPUTS;
    if (b < samples && i < n_out) {
        u64 at = (u64)(sample0 + b) * n_element + e0 + i;
        REAL largest = staged.largest[mixture.turn][b], v = elements[at], f = (REAL)0;
        if (v > NOTHING && largest > NOTHING) {
            if (mixture.total >= rk_tiny(v)) {
                f = rk_exp((v + largest) + rk_log(mixture.total));
            } else {
                i64 own = parent_first[e0 + i];
                REAL up = own_parents(own, own + stop - start, parent_group, parent_place, group_row, group_size, group_theta, theta,
                    lift + (u64)(sample0 + b) * n_row);
                if (up > NOTHING) f = rk_exp(v + up);
            }
        }
        flows[at] = f;
    }
}

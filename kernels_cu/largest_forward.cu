// Max-product values of sum nodes: the value of node m of a group is the largest log theta[c, m] + element c.
//
//   layer, tiles of 32 nodes and arrays as in sum_forward.cu; log_theta REAL, (child, node) for each group; elements, values double
//
// Grid: (n_tile, samples), 32 threads, a node each. A maximum has no order.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/queries.py::largest_forward
// op: rpukit.circuits.ops.layers.largest_forward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Poon, Domingos, "Sum-product networks: a new deep architecture", UAI 2011.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(32)
largest_forward(int n_sample, int n_element, int n_row, const i64 *list_first, const int *list_elements, const int *group_list,
                const int *group_row, const int *group_size, const i64 *group_theta, const int *tile_group, const int *tile_first,
                const REAL *log_theta, const double *elements, double *values) {
    int g = tile_group[blockIdx.x], m = tile_first[blockIdx.x] + threadIdx.x, size = group_size[g];
    if (m >= size) return;
    i64 first = list_first[group_list[g]], last = list_first[group_list[g] + 1];
    const REAL *weights = log_theta + group_theta[g] + m;
    EACH_SAMPLE(b, n_sample) {
        double v = IMPOSSIBLE;
        for (i64 k = first; k < last; ++k)
            v = rk_max(v, (double)weights[(u64)(k - first) * size] + elements[(u64)b * n_element + list_elements[k]]);
        values[(u64)b * n_row + group_row[g] + m] = v;
    }
}

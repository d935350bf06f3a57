// Choose the child with the largest term of each chosen sum, and mark its edge.
// Elements and lifts are left such that the edge counts the flow; of equal children the first is taken.
//
//   the child with the largest log theta + element: its rows are chosen, hard = 0, lift = log flow - log theta
//
//   layer, tiles of 32 nodes and arrays as in sum_forward.cu; log_theta REAL; log_flow (n_sample) REAL, of the root
//   element_first (n_element + 1) i64, element_rows int: rows of each element; chosen, lift (n_sample, n_row) u8, double
//   elements, hard (n_sample, n_element) double; hard and lift are -inf before
//
// Grid: (n_tile, samples), 32 threads, a node each. Of nodes about one variable a sample chooses one: no two write to one place.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/queries.py::largest_down
// op: rpukit.circuits.queries.propagation.largest_down
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Poon, Domingos, "Sum-product networks: a new deep architecture", UAI 2011.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(32)
largest_down(int n_sample, int n_element, int n_row, const i64 *list_first, const int *list_elements, const int *group_list,
             const int *group_row, const int *group_size, const i64 *group_theta, const int *tile_group, const int *tile_first,
             const i64 *element_first, const int *element_rows, const REAL *log_theta, const REAL *log_flow, const double *elements,
             double *hard, double *lift, unsigned char *chosen) {
    int g = tile_group[blockIdx.x], m = tile_first[blockIdx.x] + threadIdx.x, size = group_size[g];
    if (m >= size) return;
    i64 first = list_first[group_list[g]], last = list_first[group_list[g] + 1];
    const REAL *weights = log_theta + group_theta[g] + m;
    int row = group_row[g] + m;
    EACH_SAMPLE(b, n_sample) {
        unsigned char *marks = chosen + (u64)b * n_row;
        if (!marks[row]) continue;
        const double *own = elements + (u64)b * n_element;
        double most = IMPOSSIBLE;
        REAL weight = (REAL)0;
        int e = -1;
        for (i64 k = first; k < last; ++k) {
            REAL w = weights[(u64)(k - first) * size];
            double v = (double)w + own[list_elements[k]];
            if (v > most) most = v, weight = w, e = list_elements[k];
        }
        if (e < 0) continue;
        hard[(u64)b * n_element + e] = 0.0;
        lift[(u64)b * n_row + row] = (double)log_flow[b] - (double)weight;
        for (i64 i = element_first[e]; i < element_first[e + 1]; ++i) marks[element_rows[i]] = 1;
    }
}

// Mark the children of chosen products that are stored.
//
//   first (n_out + 1) i64, rows int: rows of each product, as in product_forward.cu; chosen (n_sample, n_row) u8
//
// Grid: (products / 256, samples), one thread a product.
// mirror: rpukit/circuits/_mirror/queries.py::mark_products
// op: rpukit.circuits.ops.layers.mark_products
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: docs/semantics/circuits.md, section 4.
#include "circuit_rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
mark_products(int n_sample, int n_out, int n_row, int target, const i64 *first, const int *rows, unsigned char *chosen) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n_out) return;
    EACH_SAMPLE(b, n_sample) {
        unsigned char *marks = chosen + (u64)b * n_row;
        for (i64 k = first[i]; marks[target + i] && k < first[i + 1]; ++k) marks[rows[k]] = 1;
    }
}

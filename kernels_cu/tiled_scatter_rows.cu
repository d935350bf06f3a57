// A tile: sums of the rows of a matrix by their indices, the gradient of a table.
//
//   ints: rows of the part of the table, columns, first row of the part, samples, first; floats: not used
//   dy (samples x columns), indices (samples), y (rows of the part x columns)
//
// A block owns a row of the table. Its threads look at 256 indices at a time; each thread then adds the rows that were
// found to its columns, samples ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/lookups.py::tiled_scatter_rows
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, sums.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_scatter_rows(const i64 *ints, const REAL *floats, const REAL *dy, const i64 *indices, REAL *y) {
    __shared__ u32 found[8];
    const i64 row = blockIdx.x, width = ints[1], n = ints[3];
    y += row * width;
    if (ints[4])
        for (i64 j = threadIdx.x; j < width; j += 256) y[j] = 0;
    for (i64 first = 0; first < n; first += 256) {
        const i64 i = first + threadIdx.x;
        const u32 hits = __ballot_sync(~0u, i < n && indices[i] == ints[2] + row);
        if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = hits;
        __syncthreads();
        for (int w = 0; w < 8; w++)
            for (u32 left = found[w]; left; left &= left - 1) {
                const REAL *slope = dy + (first + 32 * w + __ffs((int)left) - 1) * width;
                for (i64 j = threadIdx.x; j < width; j += 256) y[j] += slope[j];
            }
        __syncthreads();
    }
}

// A tile: rows of a part of a table, by their indices.
//
//   ints: rows, columns, first row of the part, rows of the part, first; floats: not used
//   table (rows of the part x columns), indices (rows), y (rows x columns)
//
// A thread owns one element. The first tile of a sum over the table writes NaN where the row is elsewhere; the tile
// that has it writes it. Macro: REAL.
// mirror: rpukit/tiled/_mirror/lookups.py::tiled_gather_rows
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, elements.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_gather_rows(const i64 *ints, const REAL *floats, const REAL *table, const i64 *indices, REAL *y) {
    i64 at = (i64)blockIdx.x * 256 + threadIdx.x, width = ints[1];
    if (at >= ints[0] * width) return;
    i64 k = indices[at / width] - ints[2];
    if (0 <= k && k < ints[3]) y[at] = table[k * width + at % width];
    else if (ints[4]) y[at] = (REAL)RK_NAN;
}

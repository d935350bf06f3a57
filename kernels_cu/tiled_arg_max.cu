// A tile: index of the largest element along an axis.
//
//   ints: rows, length, step of the axis, whether the last of equal elements is wanted; x, y: packed rectangles
//
// One thread a row, ascending. NaN counts as larger than all numbers. Macro: REAL.
// mirror: rpukit/tiled/_mirror/rows.py::tiled_arg_max
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, rows.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(128)
tiled_arg_max(const i64 *ints, const REAL *floats, const REAL *x, i64 *y) {
    i64 row = (i64)blockIdx.x * 128 + threadIdx.x, n = ints[1], step = ints[2], found = 0;
    if (row >= ints[0]) return;
    x += row / step * n * step + row % step;
    REAL top = x[0];
    for (i64 k = 1; k < n; k++) {
        REAL v = x[k * step];
        bool equal = v == top || (v != v && top != top);
        if (v > top || (v != v && top == top) || (ints[3] && equal)) top = v, found = k;
    }
    y[row] = found;
}

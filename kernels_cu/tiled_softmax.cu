// A tile: softmax along an axis, or its logarithm.
//
//   ints: rows, kind (0 softmax, 1 logarithm), length, step of the axis; x, y: packed rectangles
//
// A thread owns one row: largest, then one chain of exponentials, ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/rows.py::tiled_softmax
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, rows.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(128)
tiled_softmax(const i64 *ints, const REAL *floats, const REAL *x, REAL *y) {
    i64 row = (i64)blockIdx.x * 128 + threadIdx.x, n = ints[2], step = ints[3];
    if (row >= ints[0]) return;
    i64 p = row / step * n * step + row % step;
    x += p, y += p;
    REAL top = x[0], total = 0;
    for (i64 k = 1; k < n; k++) top = x[k * step] > top ? x[k * step] : top;
    for (i64 k = 0; k < n; k++) {
        REAL e = rk_exp(x[k * step] - top);
        y[k * step] = e;
        total += e;
    }
    REAL size = ints[1] ? rk_log(total) : total;
    for (i64 k = 0; k < n; k++) y[k * step] = ints[1] ? x[k * step] - top - size : y[k * step] / size;
}

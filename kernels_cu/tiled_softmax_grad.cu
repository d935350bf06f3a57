// A tile: gradient of softmax, y (dy - sum dy y), or of its logarithm, dy - exp(y) sum dy.
//
//   ints: rows, kind (1: of the logarithm), length, step of the axis; dy, y, dx: packed rectangles
//
// A thread owns one row: one chain, ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/rows.py::tiled_softmax_grad
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, rows.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(128)
tiled_softmax_grad(const i64 *ints, const REAL *floats, const REAL *dy, const REAL *y, REAL *dx) {
    i64 row = (i64)blockIdx.x * 128 + threadIdx.x, n = ints[2], step = ints[3];
    if (row >= ints[0]) return;
    i64 p = row / step * n * step + row % step;
    REAL s = 0;
    if (ints[1] == 1) {
        for (i64 k = 0; k < n; k++) s += dy[p + k * step];
        for (i64 k = 0; k < n; k++) dx[p + k * step] = rk_fma(-rk_exp(y[p + k * step]), s, dy[p + k * step]);
        return;
    }
    for (i64 k = 0; k < n; k++) s = rk_fma(dy[p + k * step], y[p + k * step], s);
    for (i64 k = 0; k < n; k++) dx[p + k * step] = y[p + k * step] * (dy[p + k * step] - s);
}

// A tile: layer normalisation of rows; mean and 1 / deviation are kept where they are needed.
//
//   ints: rows, not used, length, not used, whether mean and 1 / deviation are stored; floats: epsilon
//   x, y (rows, length), scale, bias (length), mean, inv_std (rows)
//
// A thread owns one row: chains ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/rows.py::tiled_layer_norm
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, rows.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(128)
tiled_layer_norm(const i64 *ints, const REAL *floats, const REAL *x, const REAL *scale, const REAL *bias, REAL *y,
                 REAL *mean, REAL *inv_std) {
    i64 row = (i64)blockIdx.x * 128 + threadIdx.x, n = ints[2];
    if (row >= ints[0]) return;
    x += row * n, y += row * n;
    REAL size = (REAL)n, s = 0, squares = 0;
    for (i64 k = 0; k < n; k++) s += x[k];
    REAL middle = s / size;
    for (i64 k = 0; k < n; k++) squares = rk_fma(x[k] - middle, x[k] - middle, squares);
    REAL inv = (REAL)1 / rk_sqrt(squares / size + floats[0]);
    for (i64 k = 0; k < n; k++) y[k] = rk_fma((x[k] - middle) * inv, scale[k], bias[k]);
    if (ints[4]) mean[row] = middle;
    if (ints[5]) inv_std[row] = inv;
}

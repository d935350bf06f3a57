// A tile: gradient of layer normalisation, s (d - mean d - h mean (d h)) with d = dy scale, h normalised.
//
//   ints: rows, not used, length
//   dy, x, dx (rows, length), scale (length), mean, inv_std (rows)
//
// A thread owns one row: chains ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/rows.py::tiled_layer_norm_grad
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, rows.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(128)
tiled_layer_norm_grad(const i64 *ints, const REAL *floats, const REAL *dy, const REAL *x, const REAL *scale,
                      const REAL *mean, const REAL *inv_std, REAL *dx) {
    i64 row = (i64)blockIdx.x * 128 + threadIdx.x, n = ints[2];
    if (row >= ints[0]) return;
    dy += row * n, x += row * n, dx += row * n;
    REAL size = (REAL)n, middle = mean[row], inv = inv_std[row], s = 0, t = 0;
    for (i64 k = 0; k < n; k++) {
        REAL d = dy[k] * scale[k];
        s += d;
        t = rk_fma(d, (x[k] - middle) * inv, t);
    }
    s /= size, t /= size;
    for (i64 k = 0; k < n; k++) {
        REAL h = (x[k] - middle) * inv;
        dx[k] = inv * rk_fma(-h, t, dy[k] * scale[k] - s);
    }
}

// A tile: gradient of layer normalisation, s (d - mean d - h mean (d h)) with d = dy scale, h normalised.
//
//   ints: rows, not used, length
//   dy, x, dx (rows, length), scale (length), mean, inv_std (rows)
//
// A thread owns one row: chains ascending; or TEAM threads own rows in shared memory, whose chains are the same.
// Macros: REAL, TEAM (1, or the threads of a block).
// mirror: rpukit/tiled/_mirror/rows.py::tiled_layer_norm_grad
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: TEAM=256
// check: TEAM=256 REAL=double
// source: docs/semantics/tiled.md, rows.
#include "tiled_rows.cuh"

extern "C" __global__ void __launch_bounds__(TEAM == 1 ? 128 : TEAM, 1)
tiled_layer_norm_grad(const i64 *ints, const REAL *floats, const REAL *dy, const REAL *x, const REAL *scale,
                      const REAL *mean, const REAL *inv_std, REAL *dx) {
#if TEAM == 1
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
#else
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ REAL sums[ROW_MOST], products[ROW_MOST];
    const Rows rows(ints[0], ints[2]);
    const int n = rows.n;
    REAL *slopes = (REAL *)raw, *normals = slopes + rows.count * rows.stride;
    dy += rows.first * n, x += rows.first * n, dx += rows.first * n, mean += rows.first, inv_std += rows.first;
    rows.each([&](int r, int k, int) {
        return RowPair{dy[(i64)r * n + k] * scale[k], (x[(i64)r * n + k] - mean[r]) * inv_std[r]};
    }, [&](int, int, int at, RowPair v) { slopes[at] = v.a, normals[at] = v.b; });
    __syncthreads();
    if (threadIdx.x < rows.count) {
        const REAL size = (REAL)n;
        REAL s = 0, t = 0;
        rows.chain(slopes + threadIdx.x * rows.stride, normals + threadIdx.x * rows.stride, [&](REAL d, REAL h) {
            s += d;
            t = rk_fma(d, h, t);
        });
        sums[threadIdx.x] = s / size, products[threadIdx.x] = t / size;
    }
    __syncthreads();
    rows.each([&](int r, int, int at) { return inv_std[r] * rk_fma(-normals[at], products[r], slopes[at] - sums[r]); },
              [&](int r, int k, int, REAL v) { dx[(i64)r * n + k] = v; });
#endif
}

// A tile: layer normalisation of rows; mean and 1 / deviation are kept where they are needed.
//
//   ints: rows, not used, length, not used, whether mean and 1 / deviation are stored; floats: epsilon
//   x, y (rows, length), scale, bias (length), mean, inv_std (rows)
//
// A thread owns one row: chains ascending; or TEAM threads own rows in shared memory, whose chains are the same.
// Macros: REAL, TEAM (1, or the threads of a block).
// mirror: rpukit/tiled/_mirror/rows.py::tiled_layer_norm
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: TEAM=256
// check: TEAM=256 REAL=double
// source: docs/semantics/tiled.md, rows.
#include "tiled_rows.cuh"

extern "C" __global__ void __launch_bounds__(TEAM == 1 ? 128 : TEAM, 1)
tiled_layer_norm(const i64 *ints, const REAL *floats, const REAL *x, const REAL *scale, const REAL *bias, REAL *y,
                 REAL *mean, REAL *inv_std) {
#if TEAM == 1
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
#else
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ REAL means[ROW_MOST], factors[ROW_MOST];
    REAL *held = (REAL *)raw;
    const Rows rows(ints[0], ints[2]);
    const int n = rows.n;
    x += rows.first * n, y += rows.first * n;
    rows.each([&](int r, int k, int) { return x[(i64)r * n + k]; }, [&](int, int, int at, REAL v) { held[at] = v; });
    __syncthreads();
    if (threadIdx.x < rows.count) {
        const REAL *own = held + threadIdx.x * rows.stride, size = (REAL)n;
        REAL s = 0, squares = 0;
        rows.chain(own, own, [&](REAL v, REAL) { s += v; });
        const REAL middle = s / size;
        rows.chain(own, own, [&](REAL v, REAL) { squares = rk_fma(v - middle, v - middle, squares); });
        const REAL inv = (REAL)1 / rk_sqrt(squares / size + floats[0]);
        means[threadIdx.x] = middle, factors[threadIdx.x] = inv;
        if (ints[4]) mean[rows.first + threadIdx.x] = middle;
        if (ints[5]) inv_std[rows.first + threadIdx.x] = inv;
    }
    __syncthreads();
    rows.each([&](int r, int k, int at) { return rk_fma((held[at] - means[r]) * factors[r], scale[k], bias[k]); },
              [&](int r, int k, int, REAL v) { y[(i64)r * n + k] = v; });
#endif
}

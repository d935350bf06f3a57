// A tile: gradient of softmax, y (dy - sum dy y), or of its logarithm, dy - exp(y) sum dy.
//
//   ints: rows, kind (1: of the logarithm), length, step of the axis; dy, y, dx: packed rectangles
//
// A thread owns one row: one chain, ascending; or TEAM threads own rows in shared memory, whose chains are the same.
// Macros: REAL, TEAM (1, or the threads of a block, for a step of 1).
// mirror: rpukit/tiled/_mirror/rows.py::tiled_softmax_grad
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: TEAM=256
// check: TEAM=256 REAL=double
// source: docs/semantics/tiled.md, rows.
#include "tiled_rows.cuh"

extern "C" __global__ void __launch_bounds__(TEAM == 1 ? 128 : TEAM, 1)
tiled_softmax_grad(const i64 *ints, const REAL *floats, const REAL *dy, const REAL *y, REAL *dx) {
#if TEAM == 1
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
#else
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ REAL sums[ROW_MOST];
    const Rows rows(ints[0], ints[2]);
    const int n = rows.n;
    const bool logarithm = ints[1] == 1;
    REAL *slopes = (REAL *)raw, *values = slopes + rows.count * rows.stride;
    dy += rows.first * n, y += rows.first * n, dx += rows.first * n;
    rows.each([&](int r, int k, int) { return RowPair{dy[(i64)r * n + k], y[(i64)r * n + k]}; },
              [&](int, int, int at, RowPair v) { slopes[at] = v.a, values[at] = v.b; });
    __syncthreads();
    if (threadIdx.x < rows.count) {
        const REAL *a = slopes + threadIdx.x * rows.stride, *b = values + threadIdx.x * rows.stride;
        REAL s = 0;
        if (logarithm) rows.chain(a, a, [&](REAL d, REAL) { s += d; });
        else rows.chain(a, b, [&](REAL d, REAL v) { s = rk_fma(d, v, s); });
        sums[threadIdx.x] = s;
    }
    __syncthreads();
    rows.each([&](int r, int, int at) {
        return logarithm ? rk_fma(-rk_exp(values[at]), sums[r], slopes[at]) : values[at] * (slopes[at] - sums[r]);
    }, [&](int r, int k, int, REAL v) { dx[(i64)r * n + k] = v; });
#endif
}

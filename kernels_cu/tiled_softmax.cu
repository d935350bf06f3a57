// A tile: softmax along an axis, or its logarithm.
//
//   ints: rows, kind (0 softmax, 1 logarithm), length, step of the axis; x, y: packed rectangles
//
// A thread owns one row: largest, then one chain of exponentials, ascending; or TEAM threads own rows in shared memory,
// whose chains are the same. Macros: REAL, TEAM (1, or the threads of a block, for a step of 1).
// mirror: rpukit/tiled/_mirror/rows.py::tiled_softmax
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: TEAM=256
// check: TEAM=256 REAL=double
// source: docs/semantics/tiled.md, rows.
#include "tiled_rows.cuh"

extern "C" __global__ void __launch_bounds__(TEAM == 1 ? 128 : TEAM, 1)
tiled_softmax(const i64 *ints, const REAL *floats, const REAL *x, REAL *y) {
#if TEAM == 1
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
#else
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ REAL tops[ROW_MOST], sizes[ROW_MOST];
    REAL *held = (REAL *)raw;
    const Rows rows(ints[0], ints[2]);
    const int n = rows.n, lane = threadIdx.x % 32;
    x += rows.first * n, y += rows.first * n;
    rows.each([&](int r, int k, int) { return x[(i64)r * n + k]; }, [&](int, int, int at, REAL v) { held[at] = v; });
    __syncthreads();
    for (int r = threadIdx.x / 32; r < rows.count; r += TEAM / 32) {  // the largest of a row does not depend on order
        const REAL *own = held + r * rows.stride;
        REAL top = own[0];
#pragma unroll 4
        for (int k = lane; k < n; k += 32) top = rk_max(top, own[k]);
#pragma unroll
        for (int far = 16; far; far /= 2) top = rk_max(top, __shfl_xor_sync(~0u, top, far));
        if (lane == 0) tops[r] = own[0] == own[0] ? top : own[0];  // NaN stays where it is the first element alone
    }
    __syncthreads();
    rows.each([&](int r, int, int at) { return rk_exp(held[at] - tops[r]); }, [&](int, int, int at, REAL v) { held[at] = v; });
    __syncthreads();
    if (threadIdx.x < rows.count) {
        const REAL *own = held + threadIdx.x * rows.stride;
        REAL total = 0;
        rows.chain(own, own, [&](REAL e, REAL) { total += e; });
        sizes[threadIdx.x] = ints[1] ? rk_log(total) : total;
    }
    __syncthreads();
    const bool logarithm = ints[1];
    rows.each([&](int r, int k, int at) { return logarithm ? x[(i64)r * n + k] - tops[r] - sizes[r] : held[at] / sizes[r]; },
              [&](int r, int k, int, REAL v) { y[(i64)r * n + k] = v; });
#endif
}

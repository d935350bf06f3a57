// A tile: maximum or average pooling.
//
//   ints: planes, kind (0 largest, 1 mean), oh, ow, kp, kq, strides, place of the first window (top, left), height and
//         width of x, whether zeros around the image count
//   x, y: packed rectangles
//
// A thread owns one pixel of y and walks its window row by row. Macro: REAL.
// mirror: rpukit/tiled/_mirror/pools.py::tiled_pool
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, pools.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_pool(const i64 *ints, const REAL *floats, const REAL *x, REAL *y) {
    int oh = ints[2], ow = ints[3], kp = ints[4], kq = ints[5], xh = ints[10], xw = ints[11];
    u32 e = blockIdx.x * 256u + threadIdx.x;
    int row = e / (oh * ow), i = e / ow % oh, j = e % ow;
    if (row >= ints[0]) return;
    int h0 = i * ints[6] + ints[8], w0 = j * ints[7] + ints[9], h1 = min(xh, h0 + kp), w1 = min(xw, w0 + kq);
    h0 = max(0, h0), w0 = max(0, w0);
    const REAL *image = x + (i64)row * xh * xw;
    bool mean = ints[1] != 0;
    REAL v = mean ? (REAL)0 : image[h0 * xw + w0];
    for (int h = h0; h < h1; h++)
        for (int at = w0; at < w1; at++) {
            REAL u = image[h * xw + at];
            v = mean ? v + u : u > v ? u : v;
        }
    y[e] = mean ? v / (REAL)(ints[12] ? kp * kq : (h1 - h0) * (w1 - w0)) : v;
}

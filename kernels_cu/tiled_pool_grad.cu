// A tile: gradient of pooling: to the largest of each window, the first of equals, or spread evenly.
//
//   ints: planes, kind (0 largest, 1 mean), eh, ew, kp, kq, strides, place of the first window (h_at, w_at), height and
//         width of dy, rows and columns of the image, place of the tile in it, place of x, height and width of x,
//         whether zeros around the image count
//   dy, x, dx: packed rectangles; x is not read by a mean
//
// A thread owns one pixel of dx and gathers from the windows over it, ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/pools.py::tiled_pool_grad
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, pools.
#include "rk_real.cuh"

struct Window { int h0, h1, w0, w1; };

// Whether a pixel is the first of the largest of a window.
__device__ __forceinline__ bool chosen(const REAL *x, int wide, const Window &in, int h, int w) {
    int best_h = in.h0, best_w = in.w0;
    REAL most = x[in.h0 * wide + in.w0];
#pragma unroll 1
    for (int i = in.h0; i < in.h1; i++)
#pragma unroll 1
        for (int j = in.w0; j < in.w1; j++)
            if (x[i * wide + j] > most) most = x[i * wide + j], best_h = i, best_w = j;
    return best_h == h && best_w == w;
}

extern "C" __global__ void __launch_bounds__(128, 8)
tiled_pool_grad(const i64 *ints, const REAL *floats, const REAL *dy, const REAL *x, REAL *dx) {
    int eh = ints[2], ew = ints[3], kp = ints[4], kq = ints[5], sh = ints[6], sw = ints[7];
    int h_at = ints[8], w_at = ints[9], yh = ints[10], yw = ints[11], rows = ints[12], columns = ints[13];
    int h_x = ints[16], w_x = ints[17], xh = ints[18], xw = ints[19];
    u32 e = blockIdx.x * 128u + threadIdx.x;
    int row = e / (eh * ew);
    if (row >= ints[0]) return;
    int h = e / ew % eh + ints[14], w = e % ew + ints[15];
    // From the first window that ends after the pixel to the last that begins before it.
    int i0 = h - h_at - kp + sh < 0 ? 0 : (h - h_at - kp + sh) / sh, i1 = h < h_at ? 0 : min(yh, (h - h_at) / sh + 1);
    int j0 = w - w_at - kq + sw < 0 ? 0 : (w - w_at - kq + sw) / sw, j1 = w < w_at ? 0 : min(yw, (w - w_at) / sw + 1);
    REAL total = 0;
#pragma unroll 1
    for (int i = i0; i < i1; i++)
#pragma unroll 1
        for (int j = j0; j < j1; j++) {
            Window in = {max(0, i * sh + h_at), min(rows, i * sh + h_at + kp), max(0, j * sw + w_at),
                         min(columns, j * sw + w_at + kq)};
            REAL v = dy[((i64)row * yh + i) * yw + j];
            if (ints[1]) {
                total += v / (REAL)(ints[20] ? kp * kq : (in.h1 - in.h0) * (in.w1 - in.w0));
            } else {
                Window here = {in.h0 - h_x, in.h1 - h_x, in.w0 - w_x, in.w1 - w_x};
                if (chosen(x + (i64)row * xh * xw, xw, here, h - h_x, w - w_x)) total += v;
            }
        }
    dx[e] = total;
}

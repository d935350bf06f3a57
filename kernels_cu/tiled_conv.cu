// A tile: convolution (cross-correlation) with groups, strides, dilations and zero padding.
//
//   ints: planes, channels out, oh, ow, channels in of a group, kp, kq, strides, dilations, place of the first window
//         (top, left), channels, height and width of x, channels out of a group, first, last, bias
//   x, w, bias, y: packed rectangles
//
// A thread owns one pixel of y: one chain over (channel, row, column) of the window, ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/convolutions.py::tiled_conv
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, convolutions.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_conv(const i64 *ints, const REAL *floats, const REAL *x, const REAL *w, const REAL *bias, REAL *y) {
    int co = ints[1], oh = ints[2], ow = ints[3], ci = ints[4], kp = ints[5], kq = ints[6], sh = ints[7], sw = ints[8];
    int dh = ints[9], dw = ints[10], top = ints[11], left = ints[12], xc = ints[13], xh = ints[14], xw = ints[15];
    u32 e = blockIdx.x * 256u + threadIdx.x;
    int row = e / (oh * ow), i = e / ow % oh, j = e % ow;
    if (row >= ints[0]) return;
    int n = row / co, o = row % co;
    REAL total = ints[17] ? (REAL)0 : y[e];
    for (int c = 0; c < ci; c++) {
        const REAL *plane = x + (n * xc + o / ints[16] * ci + c) * xh * xw, *v = w + (o * ci + c) * kp * kq;
        for (int p = 0; p < kp; p++) {
            int h = i * sh + p * dh + top;
            for (int q = 0; q < kq; q++) {
                int at = j * sw + q * dw + left;
                bool inside = 0 <= h && h < xh && 0 <= at && at < xw;
                total = rk_fma(inside ? plane[h * xw + at] : (REAL)0, v[p * kq + q], total);
            }
        }
    }
    if (ints[18] && ints[19]) total += bias[o];
    y[e] = total;
}

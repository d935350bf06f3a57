// A tile: gradient of a convolution's input.
//
//   ints: planes, channels in, eh, ew, channels out of a group, kp, kq, strides, dilations, place of the first window
//         (top, left), channels, height and width of dy, channels in of a group, first
//   dy, w, dx: packed rectangles
//
// A thread owns one pixel of dx and gathers what the windows over it hand back: one chain over (channel out, row,
// column of the window), ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/convolutions.py::tiled_conv_grad_x
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, convolutions.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(128, 8)
tiled_conv_grad_x(const i64 *ints, const REAL *floats, const REAL *dy, const REAL *w, REAL *dx) {
    int ci = ints[1], eh = ints[2], ew = ints[3], co = ints[4], kp = ints[5], kq = ints[6], sh = ints[7], sw = ints[8];
    int dh = ints[9], dw = ints[10], top = ints[11], left = ints[12], yc = ints[13], yh = ints[14], yw = ints[15];
    u32 e = blockIdx.x * 128u + threadIdx.x;
    int cig = ints[16], row = e / (eh * ew), h = e / ew % eh, at = e % ew;
    if (row >= ints[0]) return;
    int n = row / ci, c = row % ci;
    REAL total = ints[17] ? (REAL)0 : dx[e];
    for (int o = 0; o < co; o++) {
        int ahead = c / cig * co + o;
        const REAL *plane = dy + (i64)(n * yc + ahead) * yh * yw, *v = w + (ahead * cig + c % cig) * kp * kq;
#pragma unroll 1
        for (int p = 0; p < kp; p++) {
            int far = h - top - p * dh;
            if (far < 0 || far % sh || far / sh >= yh) continue;
            for (int q = 0; q < kq; q++) {
                int wide = at - left - q * dw;
                if (wide < 0 || wide % sw || wide / sw >= yw) continue;
                total = rk_fma(plane[far / sh * yw + wide / sw], v[p * kq + q], total);
            }
        }
    }
    dx[e] = total;
}

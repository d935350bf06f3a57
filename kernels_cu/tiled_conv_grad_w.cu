// A tile: gradient of a convolution's weights.
//
//   ints: channels out, channels in of a group, kp, kq, samples, oh, ow, strides, dilations, place of the first window
//         (top, left), channels, height and width of x, channels out of a group, first
//   dy, x, dw: packed rectangles
//
// A thread owns one weight: one chain over (sample, row, column) of dy, ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/convolutions.py::tiled_conv_grad_w
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, convolutions.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(128)
tiled_conv_grad_w(const i64 *ints, const REAL *floats, const REAL *dy, const REAL *x, REAL *dw) {
    int co = ints[0], ci = ints[1], kp = ints[2], kq = ints[3], samples = ints[4], oh = ints[5], ow = ints[6];
    int sh = ints[7], sw = ints[8], top = ints[11], left = ints[12], xc = ints[13], xh = ints[14], xw = ints[15];
    u32 e = blockIdx.x * 128u + threadIdx.x;
    int q = e % kq, p = e / kq % kp, c = e / (kq * kp) % ci, o = e / (kq * kp * ci);
    if (o >= co) return;
    int down = p * ints[9] + top, right = q * ints[10] + left;
    REAL total = ints[17] ? (REAL)0 : dw[e];
    for (int s = 0; s < samples; s++) {
        const REAL *slope = dy + (i64)(s * co + o) * oh * ow, *plane = x + (s * xc + o / ints[16] * ci + c) * xh * xw;
        for (int i = 0; i < oh; i++) {
            int h = i * sh + down;
            for (int j = 0; j < ow; j++) {
                int at = j * sw + right;
                bool inside = 0 <= h && h < xh && 0 <= at && at < xw;
                total = rk_fma(slope[i * ow + j], inside ? plane[h * xw + at] : (REAL)0, total);
            }
        }
    }
    dw[e] = total;
}

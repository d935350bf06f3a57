// Scale a partial product digitally and add it to columns of a larger one.
//
//   out[b, offset + i] = part[b, i] factor (ADD 0), or fma(part[b, i], factor, out[b, offset + i]) (ADD 1)
//   factor: SCALE 0 none (1), 1 scale[i] of a column, 2 scale[b] of a row, 3 1 / scale[b] of a row, divided
//
//   part (n_row, n); scale (n) or (n_row); out (n_row, stride), which may be part where offset is 0
//   status (1): not zero: do nothing
//
// One thread an element.
//
// Macros: ADD, SCALE.
// mirror: rpukit/inference/_mirror.py::add_scaled
// op: rpukit.inference.training.ops.add_scaled
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: ADD=1 SCALE=0
// check: ADD=0 SCALE=2
// check: ADD=0 SCALE=3
// source: digital output scaling and sums of partial products of tiles (Rasch et al., Nat. Commun. 14:5282, 2023).
#include "rk_types.cuh"

#ifndef ADD
#define ADD 0
#endif
#ifndef SCALE
#define SCALE 1
#endif

extern "C" __global__ void __launch_bounds__(256)
add_scaled(u64 n_row, u64 n, u64 stride, u64 offset, const float *part, const float *scale, float *out,
           const int *status) {
    u64 e = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || e >= n_row * n) return;
    u64 row = e / n, i = e % n, at = row * stride + offset + i;
    float v = part[e], factor = SCALE == 1 ? scale[i] : SCALE == 0 ? 1.0f : scale[row];
    if (SCALE == 3) out[at] = __fdiv_rn(v, factor);
    else out[at] = ADD ? __fmaf_rn(v, factor, out[at]) : v * factor;
}

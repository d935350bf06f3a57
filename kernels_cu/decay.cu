// Let weights relax towards their resting point: w = (w - b)(1 + alpha (scale - 1)) + b, then clip.
//
//   scale, low, high, weight (n)   float32; bias (n) float32, or null for b = 0
//   status (1): not zero: do nothing
//
// One thread a cell. BOUNDED 0 leaves the clip out (ideal cells have no bounds).
// mirror: rpukit/analog/_mirror/slow.py::decay
// op: rpukit.analog.slow.decay
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: BOUNDED=0
// source: leakage of a capacitor; lifetime t gives scale = 1 - 1/t.
#include "rk_types.cuh"
#include "device_steps.cuh"

#ifndef BOUNDED
#define BOUNDED 1
#endif

extern "C" __global__ void __launch_bounds__(256)
decay(u64 n, float alpha, const float *scale, const float *bias, const float *low, const float *high, float *weight,
      const int *status) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    float b = bias ? bias[i] : 0.0f;
    float w = __fmaf_rn(weight[i] - b, __fmaf_rn(alpha, scale[i] - 1.0f, 1.0f), b);
    weight[i] = BOUNDED ? rk_clip(w, low[i], high[i]) : w;
}

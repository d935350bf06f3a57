// Decay weights towards their resting point: w = (w - b)(1 + alpha (scale - 1)) + b, then clip.
//
//   scale, low, high, weight (n)   REAL; bias (n) REAL, or null for b = 0
//   status (1): not zero: do nothing
//
// One thread a cell. BOUNDED 0 (ideal cells) clips to the range of the type. Macros: BOUNDED, REAL.
// mirror: rpukit/analog/_mirror/slow.py::decay
// op: rpukit.analog.processes.ops.decay
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: BOUNDED=0
// check: REAL=double
// source: leakage of a capacitor; lifetime t gives scale = 1 - 1/t.
#include "device_steps.cuh"

#ifndef BOUNDED
#define BOUNDED 1
#endif

extern "C" __global__ void __launch_bounds__(256)
decay(u64 n, REAL alpha, const REAL *scale, const REAL *bias, const REAL *low, const REAL *high, REAL *weight,
      const int *status) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    REAL b = bias ? bias[i] : (REAL)0;
    REAL w = rk_fma(rk_hold(weight[i] - b), rk_hold(rk_fma(alpha, scale[i] - (REAL)1, (REAL)1)), b);
    weight[i] = BOUNDED ? rk_clip(w, low[i], high[i]) : rk_hold(w);
}

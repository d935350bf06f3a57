// Clip weights to the bounds of their cells: w = min(max(w, w_min), w_max).
//
//   low, high, weight (n)   REAL; status (1): not zero: do nothing
//
// One thread a cell. Macro: REAL.
// mirror: rpukit/analog/_mirror/slow.py::clip_weights
// op: rpukit.analog.processes.ops.clip_weights
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: the bounds of a conductance.
#include "device_steps.cuh"

extern "C" __global__ void __launch_bounds__(256)
clip_weights(u64 n, const REAL *low, const REAL *high, REAL *weight, const int *status) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    weight[i] = rk_clip(weight[i], low[i], high[i]);
}

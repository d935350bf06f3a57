// Bring weights into the bounds of their cells: w = min(max(w, w_min), w_max).
//
//   low, high, weight (n)   float32; status (1): not zero: do nothing
//
// One thread a cell.
// mirror: rpukit/analog/_mirror/slow.py::clip_weights
// op: rpukit.analog.slow.clip_weights
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: the bounds of a conductance.
#include "rk_types.cuh"
#include "device_steps.cuh"

extern "C" __global__ void __launch_bounds__(256)
clip_weights(u64 n, const float *low, const float *high, float *weight, const int *status) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    weight[i] = rk_clip(weight[i], low[i], high[i]);
}

// Let weights drift by a power law of the time since each was written, then clip.
//
//   A cell whose weight differs from `previous` by more than `tol` was written since the last call:
//   origin = w, written = now, and it rests in this call. Every other cell goes to
//     f = max(now - written, 1)^(-nu),  w = origin f + offset (f - 1) + noise_std xi
//   with nu = nu_cell (1 + nu_std xi'), less nu_k (log g - log_g0) where nu_k is not 0 and the
//   conductance g = (w - w_offset) / wg_ratio + g_offset of the cell is positive.
//   Event 0 is the first call: origin = w and written = 0 everywhere, and the cells drift.
//
//   nu_cells, low, high (n)              float32; nu_cells may be null for nu everywhere
//   weight, origin, previous (n)         float32, changed in place
//   written (n)                          float64, in units of t_0 like now
//   status (1)                           not zero: do nothing
//
// One thread a cell. Draws: op 14, index = cell, sample = event, draw 0 xi', draw 1 xi.
// BOUNDED 0 leaves the clip out (ideal cells have no bounds).
// mirror: rpukit/analog/_mirror/slow.py::drift
// op: rpukit.analog.slow.drift
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: BOUNDED=0
// source: Oh et al., IEEE Electron Device Letters 40:1325 (2019).
#include "rk_philox.cuh"
#include "rk_math.cuh"
#include "device_steps.cuh"

#ifndef BOUNDED
#define BOUNDED 1
#endif
#define OP_DRIFT 14u

extern "C" __global__ void __launch_bounds__(256)
drift(u64 n, u64 event, double now, float nu, float nu_std, float nu_k, float log_g0, float wg_ratio, float g_offset,
      float w_offset, float offset, float noise_std, float tol, const float *nu_cells, const float *low,
      const float *high, float *weight, float *origin, float *previous, double *written, const int *status, u32 key0,
      u32 key1) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    float w = weight[i];
    if (event && fabsf(w - previous[i]) > tol) {
        origin[i] = previous[i] = w;
        written[i] = now;
        return;
    }
    if (!event) {
        origin[i] = w;
        written[i] = 0.0;
    }
    uint4 b = make_uint4(0u, 0u, 0u, 0u);
    if (nu_std != 0.0f || noise_std != 0.0f) b = rk_block(make_uint2(key0, key1), OP_DRIFT, i, event, 0u);
    float rate = nu_cells ? nu_cells[i] : nu;
    if (nu_std != 0.0f) rate = rate * __fmaf_rn(nu_std, rk_normal(b.x), 1.0f);
    if (nu_k != 0.0f) {
        float g = (w - w_offset) / wg_ratio + g_offset;
        if (g > 0.0f) rate = __fmaf_rn(-nu_k, rk_log(g) - log_g0, rate);
    }
    float age = fmaxf((float)(now - written[i]), 1.0f);
    float f = rk_exp(-rate * rk_log(age));
    w = __fmaf_rn(offset, f - 1.0f, origin[i] * f);
    if (noise_std != 0.0f) w = __fmaf_rn(noise_std, rk_normal(b.y), w);
    w = BOUNDED ? rk_clip(w, low[i], high[i]) : w;
    weight[i] = previous[i] = w;
}

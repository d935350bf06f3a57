// One pulse on one cell, for each device model. Mirror: rpukit/analog/_steps.py.
//   w   the weight before the pulse; the return value is the weight after it, clipped
//   p   the planes of the cell: 0 w_min, 1 w_max, 2 step_down, 3 step_up, then the model's own
//   g   numbers of the whole tile: 0 dw_min_std, then the model's own
//   up  direction; xi  a standard normal (0 where g[0] is 0: nothing is drawn then)
// A model that may take a run of n equal pulses in one draw also gives NAME_run; it returns false,
// and leaves w alone, where the run has to be walked pulse by pulse.
// Source of the models: Rasch et al., AICAS 2021 (IBM analog hardware acceleration kit).
#pragma once

#define RK_NORMAL_REACH 5.3f  // no standard normal of ours is larger

__device__ __forceinline__ float rk_clip(float w, float low, float high) {
    return w < low ? low : w > high ? high : w;
}

// dw = +-step (1 + sigma xi)
__device__ __forceinline__ float constant_step(float w, const float *p, const float *g, bool up, float xi) {
    float step = up ? p[3] : -p[2];
    return rk_clip(w + step * __fmaf_rn(g[0], xi, 1.0f), p[0], p[1]);
}

// n steps at once have the mean n step and the deviation sqrt(n) sigma step; allowed only where no
// draw of any pulse could bring the weight to a bound.
__device__ __forceinline__ bool constant_step_run(float &w, const float *p, const float *g, bool up, int n, float xi) {
    float step = up ? p[3] : -p[2], count = (float)n;
    float reach = fabsf(step) * count * __fmaf_rn(fabsf(g[0]), RK_NORMAL_REACH, 1.0f);
    if (!(w + reach <= p[1] && w - reach >= p[0])) return false;
    w = rk_clip(w + step * __fmaf_rn(g[0] * __fsqrt_rn(count), xi, count), p[0], p[1]);
    return true;
}

// dw = +-(step + slope w)(1 + sigma xi), or with g[1] = 0: +-(step (1 + sigma xi) + slope w).
// Planes 4 slope_down, 5 slope_up. SoftBounds is this with slopes that vanish at the bounds.
__device__ __forceinline__ float linear_step(float w, const float *p, const float *g, bool up, float xi) {
    float step = up ? p[3] : p[2], slope = up ? p[5] : p[4], noise = __fmaf_rn(g[0], xi, 1.0f);
    float dw = g[1] != 0.0f ? __fmaf_rn(slope, w, step) * noise : __fmaf_rn(slope, w, step * noise);
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}

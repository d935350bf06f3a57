// One pulse on one cell, for each device model. Mirror: rpukit/analog/_steps.py.
//   w   the weight before the pulse; the return value is the weight after it, clipped
//   p   the planes of the cell: 0 w_min, 1 w_max, 2 step_down, 3 step_up, then the model's own
//   g   numbers of the whole tile: 0 dw_min_std, 7 that of the write noise, the others the model's own
//   up  direction; xi  a standard normal (0 where g[0] is 0: nothing is drawn then)
// A model that may take a run of n equal pulses in one draw also gives NAME_run; it returns false,
// and leaves w alone, where the run has to be walked pulse by pulse.
// Cells that are stuck have equal bounds and steps of 0.
// Source of the models: Rasch et al., AICAS 2021 (IBM analog hardware acceleration kit).
#pragma once
#include "rk_math.cuh"

#define RK_NORMAL_REACH 5.3f  // no standard normal of ours is larger

__device__ __forceinline__ float rk_clip(float w, float low, float high) {
    return w < low ? low : w > high ? high : w;
}

// A part of the range of a cell; 0 where the cell has none.
__device__ __forceinline__ float rk_part(float v, const float *p) {
    float range = p[1] - p[0];
    return range > 0.0f ? __fdiv_rn(v, range) : 0.0f;
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

// The same seen from a reference, plane 6: the bounds are those of w + reference.
__device__ __forceinline__ float linear_reference_step(float w, const float *p, const float *g, bool up, float xi) {
    return linear_step(w + p[6], p, g, up, xi) - p[6];
}

// dw = +-(s + sigma (|s| + add + slope |w|) xi), s = step max(1 - A exp(+-c w / (w_max - w_min)), 0).
// Globals 1 A up, 2 A down, 3 c up, 4 c down, 5 add, 6 slope.
__device__ __forceinline__ float exp_step(float w, const float *p, const float *g, bool up, float xi) {
    float grown = rk_exp((up ? g[3] : -g[4]) * rk_part(w, p));
    float factor = __fmaf_rn(up ? -g[1] : -g[2], grown, 1.0f);
    float dw = (up ? p[3] : p[2]) * (factor > 0.0f ? factor : 0.0f);
    float spread = g[0] * (fabsf(dw) + __fmaf_rn(g[6], fabsf(w), g[5]));
    dw = __fmaf_rn(spread, xi, dw);
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}

// dw = +-step r^gamma (1 + sigma xi), r the part of the range that is left in this direction, at least 0.
// Planes 4 gamma_down, 5 gamma_up.
__device__ __forceinline__ float pow_step(float w, const float *p, const float *g, bool up, float xi) {
    float left = rk_part(up ? p[1] - w : w - p[0], p), gamma = up ? p[5] : p[4];
    float factor = left > 0.0f ? rk_exp(gamma * rk_log(left)) : gamma == 0.0f ? 1.0f : 0.0f;
    float dw = (up ? p[3] : p[2]) * factor * __fmaf_rn(g[0], xi, 1.0f);
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}

// The same seen from a reference, plane 6.
__device__ __forceinline__ float pow_reference_step(float w, const float *p, const float *g, bool up, float xi) {
    return pow_step(w + p[6], p, g, up, xi) - p[6];
}

// dw = +-step f(w) (1 + sigma xi), f linear between nodes at equal distances over the range.
// Globals 1 number of nodes up, 2 down, 8.. the nodes up, then those down.
__device__ __forceinline__ float piecewise_step(float w, const float *p, const float *g, bool up, float xi) {
    int n_up = (int)g[1], last = (up ? n_up : (int)g[2]) - 1, first = up ? 8 : 8 + n_up;
    float factor = g[first];
    if (last > 0) {
        float end = (float)last, at = rk_part(w - p[0], p) * end;
        at = at > 0.0f ? at < end ? at : end : 0.0f;
        int i = (int)at < last ? (int)at : last - 1;
        float low = g[first + i];
        factor = __fmaf_rn(at - (float)i, g[first + i + 1] - low, low);
    }
    float dw = (up ? p[3] : p[2]) * factor * __fmaf_rn(g[0], xi, 1.0f);
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}

#include "user_step.cuh"

// One pulse on one cell, for each device model. Mirror: rpukit/analog/_steps.py.
//   w   the weight before the pulse; the return value is the weight after it, clipped
//   p   the planes of the cell: 0 w_min, 1 w_max, 2 step_down, 3 step_up, then the model's own
//   g   numbers of the whole tile: 0 dw_min_std, 7 that of the write noise, the others the model's own
//   T   float or double, see rk_real.cuh
//   up  direction; xi  a standard normal (0 where g[0] is 0: nothing is drawn then)
// A model that may take a run of n equal pulses in one draw also gives NAME_run; it returns false,
// and leaves w alone, where the run has to be walked pulse by pulse.
// Cells that are stuck have equal bounds and steps of 0.
// Source of the models: Rasch et al., AICAS 2021 (IBM analog hardware acceleration kit).
#pragma once
#include "rk_real.cuh"

#define RK_NORMAL_REACH 5.3  // no standard normal of ours is larger

template <class T>
__device__ __forceinline__ T rk_clip(T w, T low, T high) {
    return w < low ? low : w > high ? high : w;
}

// A part of the range of a cell; 0 where the cell has none.
template <class T>
__device__ __forceinline__ T rk_part(T v, const T *p) {
    T range = p[1] - p[0];
    return range > (T)0 ? v / range : (T)0;
}

// dw = +-step (1 + sigma xi)
template <class T>
__device__ __forceinline__ T constant_step(T w, const T *p, const T *g, bool up, T xi) {
    T step = up ? p[3] : -p[2];
    return rk_clip(w + step * rk_fma(g[0], xi, (T)1), p[0], p[1]);
}

// n steps at once have the mean n step and the deviation sqrt(n) sigma step; allowed only where no
// draw of any pulse could bring the weight to a bound.
template <class T>
__device__ __forceinline__ bool constant_step_run(T &w, const T *p, const T *g, bool up, int n, T xi) {
    T step = up ? p[3] : -p[2], count = (T)n;
    T reach = rk_abs(step) * count * rk_fma(rk_abs(g[0]), (T)RK_NORMAL_REACH, (T)1);
    if (!(w + reach <= p[1] && w - reach >= p[0])) return false;
    w = rk_clip(w + step * rk_fma(g[0] * rk_sqrt(count), xi, count), p[0], p[1]);
    return true;
}

// dw = +-(step + slope w)(1 + sigma xi), or with g[1] = 0: +-(step (1 + sigma xi) + slope w).
// Planes 4 slope_down, 5 slope_up. SoftBounds is this with slopes that vanish at the bounds.
template <class T>
__device__ __forceinline__ T linear_step(T w, const T *p, const T *g, bool up, T xi) {
    T step = up ? p[3] : p[2], slope = up ? p[5] : p[4], noise = rk_fma(g[0], xi, (T)1);
    T dw = g[1] != (T)0 ? rk_fma(slope, w, step) * noise : rk_fma(slope, w, step * noise);
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}

// The same seen from a reference, plane 6: the bounds are those of w + reference.
template <class T>
__device__ __forceinline__ T linear_reference_step(T w, const T *p, const T *g, bool up, T xi) {
    return linear_step(w + p[6], p, g, up, xi) - p[6];
}

// dw = +-(s + sigma (|s| + add + slope |w|) xi), s = step max(1 - A exp(+-c w / (w_max - w_min)), 0).
// Globals 1 A up, 2 A down, 3 c up, 4 c down, 5 add, 6 slope.
template <class T>
__device__ __forceinline__ T exp_step(T w, const T *p, const T *g, bool up, T xi) {
    const T large = (T)1e20;  // beyond all bounds, and still finite where it is multiplied by a step
    T grown = rk_exp((up ? g[3] : -g[4]) * rk_part(w, p));
    grown = grown < large ? grown : large;
    T factor = rk_fma(up ? -g[1] : -g[2], grown, (T)1);
    factor = factor < large ? factor : large;
    T dw = (up ? p[3] : p[2]) * (factor > (T)0 ? factor : (T)0);
    T spread = g[0] * (rk_abs(dw) + rk_fma(g[6], rk_abs(w), g[5]));
    dw = rk_fma(spread, xi, dw);
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}

// dw = +-step r^gamma (1 + sigma xi), r the part of the range that is left in this direction, at least 0.
// Planes 4 gamma_down, 5 gamma_up.
template <class T>
__device__ __forceinline__ T pow_step(T w, const T *p, const T *g, bool up, T xi) {
    T left = rk_part(up ? p[1] - w : w - p[0], p), gamma = up ? p[5] : p[4];
    T factor = left > (T)0 ? rk_exp(gamma * rk_log(left)) : gamma == (T)0 ? (T)1 : (T)0;
    T dw = (up ? p[3] : p[2]) * factor * rk_fma(g[0], xi, (T)1);
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}

// The same seen from a reference, plane 6.
template <class T>
__device__ __forceinline__ T pow_reference_step(T w, const T *p, const T *g, bool up, T xi) {
    return pow_step(w + p[6], p, g, up, xi) - p[6];
}

// dw = +-step f(w) (1 + sigma xi), f linear between nodes at equal distances over the range.
// Globals 1 number of nodes up, 2 down, 8.. the nodes up, then those down.
template <class T>
__device__ __forceinline__ T piecewise_step(T w, const T *p, const T *g, bool up, T xi) {
    int n_up = (int)g[1], last = (up ? n_up : (int)g[2]) - 1, first = up ? 8 : 8 + n_up;
    T factor = g[first];
    if (last > 0) {
        T end = (T)last, at = rk_part(w - p[0], p) * end;
        at = at > (T)0 ? at < end ? at : end : (T)0;
        int i = (int)at < last ? (int)at : last - 1;
        T low = g[first + i];
        factor = rk_fma(at - (T)i, g[first + i + 1] - low, low);
    }
    T dw = (up ? p[3] : p[2]) * factor * rk_fma(g[0], xi, (T)1);
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}

#include "user_step.cuh"

// Functions of one variable as data, so that a device model is an array of numbers and not a kernel.
// Mirror: rpukit/inference/_mirror.py::curve; what packs them: rpukit/inference/curves.py.
//   A buffer of floats opens with one head of RK_CURVE floats for each curve, tables lie behind the heads:
//   0 kind, 1 number of nodes, 2 place of the table, 3 end, 4 a, 5 b, 6 low, 7 high, 8 to 13 c0 to c5
//   kind 0   c0 + c1 x + ... + c5 x^5, by Horner's scheme with fma
//   kind 1   below `end` clip(a log(max(x, 1e-7)) + b, low, high), from there on the polynomial
//   kind 2   clip(a max(x, 1e-7)^b, low, high), the power as exp(b log x)
//   kind 3   between nodes a straight line, outside of them the value of the nearest one
#pragma once
#include "rk_math.cuh"

#define RK_CURVE 16
#define RK_SMALLEST 1e-7f

__device__ __forceinline__ float rk_limit(float v, float low, float high) {
    return v < low ? low : v > high ? high : v;
}

// A line through the table of n nodes: xs ascending, ys.
__device__ __forceinline__ float rk_line(int n, const float *xs, const float *ys, float x) {
    int low = 0, high = n - 1;
    if (!(x > xs[0])) return ys[0];
    if (!(x < xs[high])) return ys[high];
    while (high - low > 1) {
        int middle = (low + high) >> 1;
        if (x < xs[middle]) high = middle;
        else low = middle;
    }
    float share = __fdiv_rn(x - xs[low], xs[high] - xs[low]);
    return __fmaf_rn(ys[high] - ys[low], share, ys[low]);
}

// Curve number `which` of a buffer; the kind is known to the compiler, so that two curves share a logarithm.
template <int CURVE_KIND>
__device__ __forceinline__ float rk_curve(const float *buffer, int which, float x) {
    const float *p = buffer + which * RK_CURVE;
    if (CURVE_KIND == 3) {
        int n = (int)p[1];
        const float *xs = buffer + (int)p[2];
        return rk_line(n, xs, xs + n, x);
    }
    float least = x > RK_SMALLEST ? x : RK_SMALLEST;
    if (CURVE_KIND == 2) return rk_limit(p[4] * rk_exp(p[5] * rk_log(least)), p[6], p[7]);
    if (CURVE_KIND == 1 && x < p[3]) return rk_limit(__fmaf_rn(p[4], rk_log(least), p[5]), p[6], p[7]);
    return rk_horner(x, p[13], p[12], p[11], p[10], p[9], p[8]);
}

// Functions of one variable as data, so that a device model is an array of numbers and not a kernel.
// Mirror: rpukit/inference/_mirror.py::curve; packed by rpukit/inference/conductance/curves.py.
//   A buffer of floats opens with one head of RK_CURVE floats for each curve, tables lie behind the heads:
//   0 kind, 1 number of nodes, 2 place of the table, 3 end, 4 a, 5 b, 6 low, 7 high, 8 to 13 c0 to c5
//   kind 0   c0 + c1 x + ... + c5 x^5, by Horner's scheme with fma
//   kind 1   below `end` clip(a log(max(x, 1e-7)) + b, low, high), from there on the polynomial
//   kind 2   clip(a max(x, 1e-7)^b, low, high), the power as exp(b log x)
//   kind 3   between nodes a straight line, outside of them the value of the nearest one
//   kind 4   kind 1 without an end
#pragma once
#include "rk_philox.cuh"

#define RK_CURVE 16
#define RK_SMALLEST 1e-7f

// Clip; the bounds are no -0, and NaN becomes the lower one.
__device__ __forceinline__ float rk_limit(float v, float low, float high) { return fminf(fmaxf(v, low), high); }

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

// Curve number `which` of a buffer, its numbers in registers; the kind is known to the compiler, so that two curves
// share a logarithm. Coefficients beyond C_DEGREE are 0; IS_NEAR: b log(x) stays within [-87, 87].
template <int CURVE_KIND, int C_DEGREE = 5, int IS_NEAR = 0>
struct RkCurve {
    static constexpr bool CLIPPED = CURVE_KIND == 1 || CURVE_KIND == 2 || CURVE_KIND == 4;
    const float *buffer, *head;
    float c[6], end, a, b, low, high;

    __device__ __forceinline__ RkCurve(const float *curves, int which) {
        buffer = curves;
        head = curves + which * RK_CURVE;
        if (CURVE_KIND == 1) end = head[3];
        if (CLIPPED) a = head[4], b = head[5], low = head[6], high = head[7];
#pragma unroll
        for (int k = 0; k <= C_DEGREE; ++k) c[k] = CURVE_KIND < 2 ? head[8 + k] : 0.0f;
    }

    __device__ __forceinline__ float operator()(float x) const {
        if (CURVE_KIND == 3) {
            int n = (int)head[1];
            const float *xs = buffer + (int)head[2];
            return rk_line(n, xs, xs + n, x);
        }
        float least = fmaxf(x, RK_SMALLEST);
        if (CURVE_KIND == 2) {
            float y = b * rk_log_normal(least);
            return rk_limit(a * (IS_NEAR ? rk_exp_near(y) : rk_exp_within(y)), low, high);
        }
        float log = CLIPPED ? rk_limit(__fmaf_rn(a, rk_log_normal(least), b), low, high) : 0.0f;
        float polynomial = c[C_DEGREE];
#pragma unroll
        for (int k = C_DEGREE - 1; k >= 0; --k) polynomial = __fmaf_rn(polynomial, x, c[k]);
        return CURVE_KIND == 4 || (CURVE_KIND == 1 && x < end) ? log : polynomial;
    }
};

#ifndef WIDE
#define WIDE 1  // four neighbours are all inside, and lie on 16 bytes
#endif

__device__ __forceinline__ float4 rk_load4(const float *p, u64 first, u64 n) {
    if (WIDE) return *(const float4 *)(p + first);
    return make_float4(p[first], first + 1 < n ? p[first + 1] : 0.0f, first + 2 < n ? p[first + 2] : 0.0f,
                       first + 3 < n ? p[first + 3] : 0.0f);
}

__device__ __forceinline__ void rk_store4(float *p, u64 first, u64 n, const float *v) {
    if (WIDE) *(float4 *)(p + first) = make_float4(v[0], v[1], v[2], v[3]);
    else
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (first + c < n) p[first + c] = v[c];
}

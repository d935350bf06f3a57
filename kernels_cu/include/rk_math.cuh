// Elementary functions in float32 from additions, multiplications, fma and square roots only, so that
// a CPU gives the same bits. Mirror: rpukit/_math.py. Coefficients: tools/fit_math.py. Largest errors
// over all floats: docs/math.md.
#pragma once
#include "rk_types.cuh"

#define RK_INF __uint_as_float(0x7f800000u)
#define RK_NAN __uint_as_float(0x7fc00000u)
#define RK_LN2 0.693147182f

// (log(1 + f) - f) / f^2 for f in [-1/3, 1/3]
__device__ __forceinline__ float rk_log1p_tail(float f) {
    float r = -0.12948893f;
    r = __fmaf_rn(r, f, 0.14004761f);
    r = __fmaf_rn(r, f, -0.121671714f);
    r = __fmaf_rn(r, f, 0.1400116f);
    r = __fmaf_rn(r, f, -0.16682304f);
    r = __fmaf_rn(r, f, 0.20010747f);
    r = __fmaf_rn(r, f, -0.24999717f);
    r = __fmaf_rn(r, f, 0.3333321f);
    return __fmaf_rn(r, f, -0.5f);
}

__device__ __forceinline__ float rk_log1p_core(float f) { return __fmaf_rn(f * f, rk_log1p_tail(f), f); }

// Exponent bits of the power of two that brings a normal positive x to [2/3, 4/3).
__device__ __forceinline__ u32 rk_exponent(float x) { return (__float_as_uint(x) - 0x3f2aaaabu) & 0xff800000u; }

// log of a normal, positive, finite x
__device__ __forceinline__ float rk_log_normal(float x) {
    u32 e = rk_exponent(x);
    float f = __uint_as_float(__float_as_uint(x) - e) - 1.0f;
    return __fmaf_rn((float)(int)e * 1.1920929e-07f, RK_LN2, rk_log1p_core(f));
}

__device__ __forceinline__ float rk_log(float x) {
    bool small = x < 1.17549435e-38f;  // zero, subnormal or negative
    float scaled = small ? x * 8388608.0f : x;
    u32 e = rk_exponent(scaled);
    float f = __uint_as_float(__float_as_uint(scaled) - e) - 1.0f;
    float n = __fmaf_rn((float)(int)e, 1.1920929e-07f, small ? -23.0f : 0.0f);
    float r = __fmaf_rn(n, RK_LN2, rk_log1p_core(f));
    if (x < RK_INF && x > 0.0f) return r;
    return x == 0.0f ? -RK_INF : x < 0.0f ? RK_NAN : x;  // inf and NaN stay
}

// 1 + x is m 2^n with f = m - 1; what the roundings of f and of the leading sum lose is carried along.
__device__ __forceinline__ float rk_log1p(float x) {
    u32 e = fabsf(x) < 0.25f ? 0u : rk_exponent(1.0f + x);
    float t = __uint_as_float(0x3f800000u - e), n = (float)(int)e * 1.1920929e-07f;  // t = 2^-n
    float f = __fmaf_rn(x, t, t - 1.0f), lost = __fmaf_rn(x, t, -(f - (t - 1.0f)));
    if (x > 1.0e9f) {  // the 1 does not count
        f = __uint_as_float(__float_as_uint(x) - e) - 1.0f;
        lost = 0.0f;
    }
    float lead = n * 0.693145752f, sum = lead + f;
    lost = __fmaf_rn(lost, 1.0f - f, n == 0.0f ? 0.0f : f - (sum - lead));
    float r = sum + __fmaf_rn(f * f, rk_log1p_tail(f), __fmaf_rn(n, 1.42860677e-6f, lost));
    if (x > -1.0f && x < RK_INF) return x == 0.0f ? x : r;
    return x == -1.0f ? -RK_INF : x < -1.0f ? RK_NAN : x;
}

// r 2^j for j in [-150, 128], rounded once where the result is subnormal
__device__ __forceinline__ float rk_scale(float r, int j) {
    int half = j >> 1;
    return r * __uint_as_float((u32)(half + 127) << 23) * __uint_as_float((u32)(j - half + 127) << 23);
}

__device__ __forceinline__ float rk_exp(float x) {
    float a = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;  // NaN goes through
    float j = __fmaf_rn(a, 1.442695f, 12582912.0f) - 12582912.0f;
    float f = __fmaf_rn(j, -0.693145752f, a);
    f = __fmaf_rn(j, -1.42860677e-6f, f);
    float r = 0.0013814612f;
    r = __fmaf_rn(r, f, 0.00836871f);
    r = __fmaf_rn(r, f, 0.04166839f);
    r = __fmaf_rn(r, f, 0.16666521f);
    r = __fmaf_rn(r, f, 0.49999994f);
    r = __fmaf_rn(r, f, 1.0f);
    r = __fmaf_rn(r, f, 1.0f);
    return x == x ? rk_scale(r, (int)j) : x;
}

__device__ __forceinline__ float rk_expm1(float x) {
    float a = x < -18.0f ? -18.0f : x > 89.0f ? 89.0f : x;
    float j = fabsf(a) < 0.41f ? 0.0f : __fmaf_rn(a, 1.442695f, 12582912.0f) - 12582912.0f;
    float f = __fmaf_rn(j, -0.693145752f, a);
    f = __fmaf_rn(j, -1.42860677e-6f, f);
    float r = 0.00019847682f;
    r = __fmaf_rn(r, f, 0.001396473f);
    r = __fmaf_rn(r, f, 0.008333455f);
    r = __fmaf_rn(r, f, 0.041666012f);
    r = __fmaf_rn(r, f, 0.16666666f);
    r = __fmaf_rn(r, f, 0.5f);
    r = __fmaf_rn(f * f, r, f);
    if (!(x == x)) return x;
    if (j == 0.0f) return x == 0.0f ? x : r;
    // (2^j - 1) + 2^j r, at half size so that 2^128 does not overflow
    float s = __uint_as_float((u32)((int)j - 1 + 127) << 23);
    return 2.0f * (j < 23.0f ? __fmaf_rn(s, r, s - 0.5f) : __fmaf_rn(s, r, -0.5f) + s);
}

__device__ __forceinline__ float rk_sqrt(float x) { return __fsqrt_rn(x); }
__device__ __forceinline__ float rk_reciprocal(float x) { return __fdiv_rn(1.0f, x); }

__device__ __forceinline__ float rk_sigmoid(float x) {
    float e = rk_exp(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

__device__ __forceinline__ float rk_tanh(float x) {
    float a = fabsf(x), e = rk_expm1(2.0f * (a > 10.0f ? 10.0f : a));
    float t = a > 9.2f ? 1.0f : e / (e + 2.0f);
    return x == x ? (x < 0.0f ? -t : x == 0.0f ? x : t) : x;
}

// Standard normal quantile of p in (0, 1), for p with 23 bits and a half: |error| < 1e-6, odd about 1/2.
__device__ __forceinline__ float rk_normal_quantile(float p) {
    float x = __fmaf_rn(2.0f, p, -1.0f);
    float w = -rk_log_normal((1.0f - x) * (1.0f + x));
    float y;
    if (w < 5.0f) {
        w = w - 2.5f;
        y = -1.1779192e-08f;
        y = __fmaf_rn(y, w, 3.214443e-08f);
        y = __fmaf_rn(y, w, 6.5104047e-07f);
        y = __fmaf_rn(y, w, -4.889336e-06f);
        y = __fmaf_rn(y, w, -6.9851462e-06f);
        y = __fmaf_rn(y, w, 0.00030876047f);
        y = __fmaf_rn(y, w, -0.0017716961f);
        y = __fmaf_rn(y, w, -0.0059076915f);
        y = __fmaf_rn(y, w, 0.34880206f);
        y = __fmaf_rn(y, w, 2.1233134f);
    } else {
        w = __fsqrt_rn(w) - 3.0f;
        y = 0.00019710496f;
        y = __fmaf_rn(y, w, -0.00045444228f);
        y = __fmaf_rn(y, w, -0.00013093777f);
        y = __fmaf_rn(y, w, 0.0021189365f);
        y = __fmaf_rn(y, w, -0.005061123f);
        y = __fmaf_rn(y, w, 0.008036398f);
        y = __fmaf_rn(y, w, -0.010805976f);
        y = __fmaf_rn(y, w, 0.01335824f);
        y = __fmaf_rn(y, w, 1.4165826f);
        y = __fmaf_rn(y, w, 4.0064344f);
    }
    return y * x;
}

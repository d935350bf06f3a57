// Elementary functions in float32 from additions, multiplications, divisions, fma and square roots
// only, so that a CPU gives the same bits. Mirror: rpukit/_exact/math.py. Coefficients: tools/fit_math.py.
// Largest errors over all floats: docs/math.md. float64: rk_math64.cuh; pow, erf, lgamma and sums of
// logarithms: rk_special.cuh.
#pragma once
#include "rk_types.cuh"

#define RK_INF __uint_as_float(0x7f800000u)
#define RK_NAN __uint_as_float(0x7fc00000u)
#define RK_LN2 0.693147182f
#define RK_LN2_HIGH 0.693145752f  // with zeros to spare
#define RK_LN2_LOW 1.42860677e-06f
#define RK_LOG2E 1.442695f
#define RK_ROUND 12582912.0f  // added and taken away: to the nearest integer

__device__ __forceinline__ float rk_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// A polynomial in x, leading coefficient first, one fma a step.
__device__ __forceinline__ float rk_horner(float, float r) { return r; }
template <class... Rest>
__device__ __forceinline__ float rk_horner(float x, float r, float c, Rest... rest) {
    return rk_horner(x, __fmaf_rn(r, x, c), rest...);
}

// (log(1 + f) - f) / f^2 for f in [-1/3, 1/3]
__device__ __forceinline__ float rk_log1p_tail(float f) {
    return rk_horner(f, -0.129489228f, 0.140047655f, -0.121671662f, 0.140011594f, -0.166823044f, 0.20010747f,
        -0.249997169f, 0.333332092f, -0.5f);
}

__device__ __forceinline__ float rk_log1p_core(float f) { return __fmaf_rn(f * f, rk_log1p_tail(f), f); }

// Exponent bits of the power of two that brings a normal positive x to [2/3, 4/3).
__device__ __forceinline__ u32 rk_exponent(float x) { return (__float_as_uint(x) - 0x3f2aaaabu) & 0xff800000u; }

// log of a normal, positive, finite x
__device__ __forceinline__ float rk_log_normal(float x) {
    u32 e = rk_exponent(x);
    float f = __uint_as_float(__float_as_uint(x) - e) - 1.0f;
    return __fmaf_rn((float)(int)e, RK_LN2 * 1.1920929e-07f, rk_log1p_core(f));  // a power of two: n ln 2 as it is
}

// log of a positive, finite x
__device__ __forceinline__ float rk_log_finite(float x) {
    bool small = x < 1.17549435e-38f;  // subnormal
    float scaled = small ? x * 8388608.0f : x;
    u32 e = rk_exponent(scaled);
    float f = __uint_as_float(__float_as_uint(scaled) - e) - 1.0f;
    float n = __fmaf_rn((float)(int)e, 1.1920929e-07f, small ? -23.0f : 0.0f);
    return __fmaf_rn(n, RK_LN2, rk_log1p_core(f));
}

__device__ __forceinline__ float rk_log(float x) {
    float r = rk_log_finite(x);
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
    float lead = n * RK_LN2_HIGH, sum = lead + f;
    lost = __fmaf_rn(lost, 1.0f - f, n == 0.0f ? 0.0f : f - (sum - lead));
    float r = sum + __fmaf_rn(f * f, rk_log1p_tail(f), __fmaf_rn(n, RK_LN2_LOW, lost));
    if (x > -1.0f && x < RK_INF) return x == 0.0f ? x : r;
    return x == -1.0f ? -RK_INF : x < -1.0f ? RK_NAN : x;
}

// r 2^j for j in [-150, 128], rounded once where the result is subnormal
__device__ __forceinline__ float rk_scale(float r, int j) {
    int half = j >> 1;
    return r * __uint_as_float((u32)(half + 127) << 23) * __uint_as_float((u32)(j - half + 127) << 23);
}

// exp(f) for f in [-ln 2 / 2, ln 2 / 2]
__device__ __forceinline__ float rk_exp_core(float f) {
    return rk_horner(f, 0.00138146058f, 0.00836871006f, 0.041668389f, 0.166665211f, 0.49999994f, 1.0f, 1.0f);
}

__device__ __forceinline__ float rk_exp(float x) {
    float a = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;  // NaN goes through
    float j = __fmaf_rn(a, RK_LOG2E, RK_ROUND) - RK_ROUND;
    float f = __fmaf_rn(j, -RK_LN2_LOW, __fmaf_rn(j, -RK_LN2_HIGH, a));
    return x == x ? rk_scale(rk_exp_core(f), (int)j) : x;
}

// exp(x) for x in [-87, 88], where the scale is an addition of exponents.
__device__ __forceinline__ float rk_exp_near(float x) {
    float t = __fmaf_rn(x, RK_LOG2E, RK_ROUND), j = t - RK_ROUND;
    float f = __fmaf_rn(j, -RK_LN2_LOW, __fmaf_rn(j, -RK_LN2_HIGH, x));
    return __uint_as_float(__float_as_uint(rk_exp_core(f)) + (__float_as_uint(t) << 23));
}
// exp(x) for x limited to [-87, 88].
__device__ __forceinline__ float rk_exp_within(float x) { return rk_exp_near(fminf(fmaxf(x, -87.0f), 88.0f)); }

__device__ __forceinline__ float rk_expm1(float x) {
    float a = x < -18.0f ? -18.0f : x > 89.0f ? 89.0f : x;
    float j = fabsf(a) < 0.41f ? 0.0f : __fmaf_rn(a, RK_LOG2E, RK_ROUND) - RK_ROUND;
    float whole = __fmaf_rn(j, -RK_LN2_HIGH, a), f = __fmaf_rn(j, -RK_LN2_LOW, whole);
    float lost = __fmaf_rn(j, -RK_LN2_LOW, whole - f);
    float tail = rk_horner(f, 0.000198476817f, 0.00139647303f, 0.00833345484f, 0.0416660123f, 0.166666657f, 0.5f);
    float r = f + __fmaf_rn(f * f, tail, lost);
    if (x != x) return x;
    if (j == 0.0f) return x == 0.0f ? x : r;
    // (2^j - 1) + 2^j r, at half size so that 2^128 does not overflow; s - 1/2 is exact or does not
    // count, but for a few j.
    float s = __uint_as_float((u32)((int)j - 1 + 127) << 23);
    return 2.0f * (j < 25.0f || j > 27.0f ? __fmaf_rn(s, r, s - 0.5f) : __fmaf_rn(s, r, -0.5f) + s);
}

__device__ __forceinline__ float rk_sqrt(float x) { return __fsqrt_rn(x); }
__device__ __forceinline__ float rk_reciprocal(float x) { return __fdiv_rn(1.0f, x); }

// a / b, rounded once, where y is rk_reciprocal(b): the quotient is corrected twice by its exact remainder. That needs
// a = 0, or a and b of ordinary size: see rk_ordinary.
__device__ __forceinline__ float rk_divide(float a, float b, float y) {
    float q = a * y;
    q = __fmaf_rn(__fmaf_rn(-b, q, a), y, q);
    return __fmaf_rn(__fmaf_rn(-b, q, a), y, q);
}
__device__ __forceinline__ bool rk_ordinary(float a) { return fabsf(a) > 1e-18f && fabsf(a) < 1e18f; }

__device__ __forceinline__ float rk_sigmoid(float x) {
    float e = rk_exp(-fabsf(x));
    return __fdiv_rn(x < 0.0f ? e : 1.0f, 1.0f + e);
}

__device__ __forceinline__ float rk_tanh(float x) {
    float a = fabsf(x), e = rk_expm1(2.0f * (a > 10.0f ? 10.0f : a));
    float t = a > 9.2f ? 1.0f : __fdiv_rn(e, e + 2.0f);
    return x == x ? (x < 0.0f ? -t : x == 0.0f ? x : t) : x;
}

// Standard normal quantile of p = (k + 1/2) / 2^23: |error| < 1e-6, increasing, odd about 1/2.
__device__ __forceinline__ float rk_normal_middle(float w) {
    return rk_horner(w - 2.5f, -1.17791519e-08f, 3.21443423e-08f, 6.51039954e-07f, -4.88933529e-06f, -6.98514441e-06f,
        0.000308760471f, -0.00177169614f, -0.00590769155f, 0.34880206f, 2.12331343f);
}
__device__ __forceinline__ float rk_normal_tail(float w) {
    return rk_horner(__fsqrt_rn(w) - 3.0f, 0.000197104557f, -0.000454441499f, -0.00013093758f, 0.00211893558f,
        -0.00506112305f, 0.00803639833f, -0.0108059756f, 0.01335824f, 1.41658258f, 4.00643444f);
}
// From x = 2 p - 1, with w = -log(1 - x^2), in which 1 - x^2 is rounded once.
__device__ __forceinline__ float rk_normal_w(float x) { return -rk_log_normal(__fmaf_rn(-x, x, 1.0f)); }
__device__ __forceinline__ float rk_normal_centred(float x) {
    float w = rk_normal_w(x);
    return x * (w < 5.0f ? rk_normal_middle(w) : rk_normal_tail(w));
}
__device__ __forceinline__ float rk_normal_quantile_draw(float p) {
    return rk_normal_centred(__fmaf_rn(2.0f, p, -1.0f));
}

// N of them side by side: what is rare comes after what all have, or the others would wait for it.
template <int N> __device__ __forceinline__ void rk_normals_centred(const float (&x)[N], float (&y)[N]) {
    float w[N], most = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        w[i] = rk_normal_w(x[i]);
        y[i] = x[i] * rk_normal_middle(w[i]);
        most = i ? fmaxf(most, w[i]) : w[i];
    }
    if (most < 5.0f) return;
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (!(w[i] < 5.0f)) y[i] = x[i] * rk_normal_tail(w[i]);
}
template <int N> __device__ __forceinline__ void rk_normal_quantile_draws(const float (&p)[N], float (&y)[N]) {
    float x[N];
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = __fmaf_rn(2.0f, p[i], -1.0f);
    rk_normals_centred(x, y);
}

// The same for any p: tiny p too, -inf at 0, inf at 1, NaN outside.
__device__ __forceinline__ float rk_normal_quantile(float p) {
    if (p >= 5.9604645e-08f && p < 1.0f) return rk_normal_quantile_draw(p);
    if (p > 0.0f && p < 1.0f) {
        float s = __fsqrt_rn(-rk_log((p + p) * 2.0f)) - 7.0f;
        return __fmaf_rn(2.0f, p, -1.0f) * rk_horner(s, 7.24733218e-10f, -3.69776276e-09f, 4.67741046e-09f,
            -5.50987274e-08f, 4.97813005e-07f, -2.38895791e-06f, 8.39722907e-06f, 9.06792775e-06f,
            -0.000724816346f, 1.42636955f, 9.71426105f);
    }
    return p == 0.0f ? -RK_INF : p == 1.0f ? RK_INF : RK_NAN;
}

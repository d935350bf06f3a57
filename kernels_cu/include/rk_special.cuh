// pow, erf, lgamma and sums of logarithms in float32. Mirror: rpukit/_exact/special.py. Coefficients:
// tools/fit_math.py. Largest errors: docs/math.md. float64: rk_special64.cuh.
#pragma once
#include "rk_math.cuh"

#define RK_THIRD 0.333333343f
#define RK_THIRD_LOW -9.93410754e-09f

// log of a positive finite x as the sum high + low, to about 2^-38.
__device__ __forceinline__ void rk_log_pair(float x, float &high, float &low) {
    bool small = x < 1.17549435e-38f;
    float scaled = small ? x * 8388608.0f : x;
    u32 e = (__float_as_uint(scaled) - 0x3f3504f3u) & 0xff800000u;  // to [1, 2) / sqrt(2)
    float n = __fmaf_rn((float)(int)e, 1.1920929e-07f, small ? -23.0f : 0.0f);
    float f = __uint_as_float(__float_as_uint(scaled) - e) - 1.0f;
    float d = 2.0f + f, d_low = f - (d - 2.0f), s = __fdiv_rn(f, d);  // log m = 2 atanh(s)
    float s_low = __fdiv_rn(__fmaf_rn(-s, d_low, __fmaf_rn(-s, d, f)), d);
    float z = s * s, z_low = __fmaf_rn(s + s, s_low, __fmaf_rn(s, s, -z));
    float third = z * RK_THIRD;
    float third_low = __fmaf_rn(z_low, RK_THIRD, __fmaf_rn(z, RK_THIRD_LOW, __fmaf_rn(z, RK_THIRD, -third)));
    float rest = z * z * rk_horner(z, 0.0956199616f, 0.111023098f, 0.142857671f, 0.200000003f);
    float p = third + rest, p_low = third - p + rest + third_low;
    float a = s + s, b = a * p;
    float b_low = __fmaf_rn(a, p_low, __fmaf_rn(s_low + s_low, 1.0f + p, __fmaf_rn(a, p, -b)));
    float lead = n * RK_LN2_HIGH, tail;
    high = a + b;
    tail = a - high + b + b_low;
    a = lead + high;
    low = lead - a + high + __fmaf_rn(n, RK_LN2_LOW, tail);
    high = a;
}

// 0: even, 1: odd, 2: no integer
__device__ __forceinline__ int rk_parity(float y) {
    float a = fabsf(y);
    if (!(a < 16777216.0f)) return 0;  // even, or infinite, or NaN
    int whole = (int)a;
    return (float)whole == a ? whole & 1 : 2;
}

__device__ __forceinline__ float rk_pow(float x, float y) {
    float a = fabsf(x), r;
    int parity = rk_parity(y);
    bool negative = (__float_as_uint(x) >> 31) && parity == 1;
    if (x == 1.0f || y == 0.0f) return 1.0f;
    if (x != x || y != y) return RK_NAN;
    if (a == 0.0f || a == RK_INF) {
        r = (a == RK_INF) == (y > 0.0f) ? RK_INF : 0.0f;
        return negative ? -r : r;
    }
    if (fabsf(y) == RK_INF) return a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? RK_INF : 0.0f;
    if (x < 0.0f && parity == 2) return RK_NAN;
    float high, low;
    rk_log_pair(a, high, low);
    float p = y * high, p_low = __fmaf_rn(y, low, __fmaf_rn(y, high, -p));
    if (fabsf(p) > 200.0f) {
        p = p > 0.0f ? 89.0f : -104.0f;
        p_low = 0.0f;
    }
    p = p > 89.0f ? 89.0f : p < -104.0f ? -104.0f : p;
    float j = __fmaf_rn(p, RK_LOG2E, RK_ROUND) - RK_ROUND;
    float whole = __fmaf_rn(j, -RK_LN2_HIGH, p), rest = __fmaf_rn(j, -RK_LN2_LOW, p_low);
    float f = whole + rest, lost = whole - f + rest;
    r = rk_exp_core(f);
    r = rk_scale(__fmaf_rn(r, lost, r), (int)j);
    return negative ? -r : r;
}

__device__ __forceinline__ float rk_erf(float x) {
    float a = fabsf(x);
    if (a < 1.0f)
        return __fmaf_rn(x, rk_horner(x * x, 7.85386728e-05f, -0.000801019545f, 0.00518832775f, -0.0268538129f,
            0.112835854f, -0.37612626f, 0.128379166f), x);
    if (x != x) return x;
    float t = (a > 3.95f ? 3.95f : a) - 2.0f;
    float r = 1.0f - rk_exp(rk_horner(t, -2.1697575e-05f, 0.000137706156f, -0.000730212487f, 0.00357051939f,
        -0.0164658111f, -0.923750997f, -4.41816092f, -5.36494112f));
    return x < 0.0f ? -r : r;
}

// lgamma(x) / ((x - 1) (x - 2)) at x = t + 3/2 in [1, 2]
__device__ __forceinline__ float rk_lgamma_core(float t) {
    return rk_horner(t, 0.000959909579f, -0.00152551918f, 0.00184831582f, -0.00311640254f, 0.00545647461f,
        -0.00943639688f, 0.0167964976f, -0.031307999f, 0.0629114136f, -0.145959899f, 0.483128965f);
}

// x (lgamma(x) - (x - 1/2) (log x - 1) - const), for z = 1 / x^2, x from 8 on
__device__ __forceinline__ float rk_stirling(float z) {
    return rk_horner(z, 0.000780058268f, -0.00277769892f, 0.0833333358f);
}

// |sin(pi u)| / pi for u in [-1/2, 1/2]
__device__ __forceinline__ float rk_sinpi_over_pi(float u) {
    return fabsf(__fmaf_rn(u * (u * u), rk_horner(u * u, 0.0247250348f, -0.19044739f, 0.811716437f, -1.64493334f), u));
}

// log |Gamma(x)|
__device__ __forceinline__ float rk_lgamma(float x) {
    float a = fabsf(x), r;
    if (!(a < RK_INF)) return x != x ? x : RK_INF;
    if (x <= 0.0f && floorf(x) == x) return RK_INF;
    int k = 8;
    if (a < 8.0f) {
        k = (int)a;
        float u = a - (float)k, product = a - 1.0f;
        r = u * (u - 1.0f) * rk_lgamma_core(u - 0.5f);
        for (int i = 2; i < k; ++i) product = product * (a - (float)i);
        r = r + (k >= 2 ? rk_log(product) : 0.0f);
    } else {
        float inverse = __fdiv_rn(1.0f, a);
        float rest = __fmaf_rn(rk_stirling(inverse * inverse), inverse, 0.418938533f);
        r = __fmaf_rn(a - 0.5f, rk_log(a) - 1.0f, rest);
    }
    if (x > 0.0f) return k == 0 ? r - rk_log(a) : r;
    float s = rk_sinpi_over_pi(a - rintf(a));
    return -rk_log(k == 0 ? s : a * s) - r;
}

// log(exp(x) + exp(y))
__device__ __forceinline__ float rk_logaddexp(float x, float y) {
    float high = x > y ? x : y, low = x > y ? y : x;
    if (high != high || low != low) return RK_NAN;
    if (x == y) return x + RK_LN2;
    return high + rk_log1p(rk_exp(low - high));
}

// A pair (m, s) stands for s exp(m). Add the pair (m_next, s_next) to it.
__device__ __forceinline__ void rk_join_sums(float &m, float &s, float m_next, float s_next) {
    if (m_next > m) {
        s = __fmaf_rn(s, rk_exp(m - m_next), s_next);
        m = m_next;
    } else if (m == m_next) {
        s = s + s_next;
    } else {
        s = __fmaf_rn(s_next, rk_exp(m_next - m), s);
    }
}

// log(s exp(m)); -inf where s is 0
__device__ __forceinline__ float rk_log_of_sum(float m, float s) { return s != 0.0f ? m + rk_log(s) : -RK_INF; }

// pow, erf, lgamma and sums of logarithms in float64; the same names as in rk_special.cuh, overloaded.
// Mirror: rpukit/_exact/special.py. Coefficients: tools/fit_math.py. Errors seen: docs/math.md.
#pragma once
#include "rk_math64.cuh"
#include "rk_special.cuh"

#define RK_THIRD_64 0.3333333333333333
#define RK_THIRD_LOW_64 1.850371707708594e-17

// log of a positive finite x as the sum high + low, to about 2^-68.
__device__ __forceinline__ void rk_log_pair(double x, double &high, double &low) {
    bool small = x < 2.2250738585072014e-308;
    double scaled = small ? x * 18014398509481984.0 : x;
    u64 e = (rk_bits(scaled) - 0x3fe6a09e667f3bcdull) & 0xfff0000000000000ull;  // to [1, 2) / sqrt(2)
    double n = rk_exponent_value(e) - (small ? 54.0 : 0.0);
    double f = rk_from_bits(rk_bits(scaled) - e) - 1.0;
    double d = 2.0 + f, d_low = f - (d - 2.0), s = __ddiv_rn(f, d);  // log m = 2 atanh(s)
    double s_low = __ddiv_rn(__fma_rn(-s, d_low, __fma_rn(-s, d, f)), d);
    double z = s * s, z_low = __fma_rn(s + s, s_low, __fma_rn(s, s, -z));
    double third = z * RK_THIRD_64;
    double third_low = __fma_rn(z_low, RK_THIRD_64, __fma_rn(z, RK_THIRD_LOW_64, __fma_rn(z, RK_THIRD_64, -third)));
    double rest = z * z * rk_horner(z, 0.053830668227623918, 0.0522795496554695, 0.058834160769850305,
        0.066666480417850046, 0.076923078835353945, 0.09090909089807557, 0.11111111111114287,
        0.14285714285714282, 0.20000000000000001);
    double p = third + rest, p_low = third - p + rest + third_low;
    double a = s + s, b = a * p;
    double b_low = __fma_rn(a, p_low, __fma_rn(s_low + s_low, 1.0 + p, __fma_rn(a, p, -b)));
    double lead = n * RK_LN2_HIGH_64, tail;
    high = a + b;
    tail = a - high + b + b_low;
    a = lead + high;
    low = lead - a + high + __fma_rn(n, RK_LN2_LOW_64, tail);
    high = a;
}

// 0: even, 1: odd, 2: no integer
__device__ __forceinline__ int rk_parity(double y) {
    double a = fabs(y);
    if (!(a < 9007199254740992.0)) return 0;  // even, or infinite, or NaN
    i64 whole = (i64)a;
    return (double)whole == a ? (int)(whole & 1) : 2;
}

__device__ __forceinline__ double rk_pow(double x, double y) {
    double a = fabs(x), r;
    int parity = rk_parity(y);
    bool negative = (rk_bits(x) >> 63) && parity == 1;
    if (x == 1.0 || y == 0.0) return 1.0;
    if (x != x || y != y) return RK_NAN64;
    if (a == 0.0 || a == RK_INF64) {
        r = (a == RK_INF64) == (y > 0.0) ? RK_INF64 : 0.0;
        return negative ? -r : r;
    }
    if (fabs(y) == RK_INF64) return a == 1.0 ? 1.0 : (a > 1.0) == (y > 0.0) ? RK_INF64 : 0.0;
    if (x < 0.0 && parity == 2) return RK_NAN64;
    double high, low;
    rk_log_pair(a, high, low);
    double p = y * high, p_low = __fma_rn(y, low, __fma_rn(y, high, -p));
    if (fabs(p) > 2000.0) {
        p = p > 0.0 ? 710.0 : -746.0;
        p_low = 0.0;
    }
    p = p > 710.0 ? 710.0 : p < -746.0 ? -746.0 : p;
    double j = __fma_rn(p, RK_LOG2E_64, RK_ROUND_64) - RK_ROUND_64;
    double whole = __fma_rn(j, -RK_LN2_HIGH_64, p), rest = __fma_rn(j, -RK_LN2_LOW_64, p_low);
    double f = whole + rest, lost = whole - f + rest;
    r = rk_exp_core(f);
    r = rk_scale(__fma_rn(r, lost, r), (int)j);
    return negative ? -r : r;
}

__device__ __forceinline__ double rk_erf(double x) {
    double a = fabs(x);
    if (a < 1.0)
        return __fma_rn(x, rk_horner(x * x, 5.9452559841754601e-11, -1.1365662652678077e-09,
            1.4657879024587215e-08, -1.635002510920955e-07, 1.6460972807366729e-06, -1.4925593506373649e-05,
            0.00012055331036882645, -0.00085483269787418902, 0.0052239776247808645, -0.026866170645072896,
            0.11283791670954857, -0.37612638903183748, 0.12837916709551259), x);
    if (x != x) return x;
    double t;
    if (a < 2.5)
        t = rk_horner(a - 1.75, 9.8213793324892222e-10, 2.4598470170628486e-09, -2.4132838669979811e-08,
            1.1317648993973617e-07, -4.0129662283216403e-07, 8.9094117578481053e-07, 8.2733677064824986e-07,
            -2.3741504672100485e-05, 0.0001745230895471166, -0.00096409864191361236, 0.0046249304974984229,
            -0.020538840382079714, -0.90994016649671861, -3.9596109008134088, -4.3178635254332223);
    else
        t = rk_horner((a > 6.0 ? 6.0 : a) - 4.25, 7.7679011696958281e-11, 7.4346568605417596e-10,
            2.3852620593755049e-09, 1.0863185552485287e-08, -2.1519025690666695e-08, 2.3883809753610808e-07,
            -1.6038365443061018e-06, 1.0877142077451327e-05, -7.2382798361651161e-05, 0.00048052735679799449,
            -0.0032637445016463168, -0.9760845763528081, -8.7237757155032281, -20.107769901468281);
    double r = 1.0 - rk_exp(t);
    return x < 0.0 ? -r : r;
}

// lgamma(x) / ((x - 1) (x - 2)) at x = t + 3/2 in [1, 2]
__device__ __forceinline__ double rk_lgamma_core(double t) {
    return rk_horner(t, 1.2169075790889628e-05, -1.854239188391907e-05, 1.3149715215244748e-05,
        -2.1470397892312773e-05, 4.3046949454195468e-05, -6.794597228579864e-05, 0.00010534946403354944,
        -0.00016856943461877638, 0.00027131474343201006, -0.00043803554422290213, 0.00071151895715782095,
        -0.0011644113396797873, 0.0019229163201662034, -0.0032120742227685463, 0.0054464578388430862,
        -0.0094256224447622824, 0.016797098631279671, -0.031308487501054229, 0.062911401074564346,
        -0.14595989591430594, 0.48312895054098087);
}

// x (lgamma(x) - (x - 1/2) (log x - 1) - const), for z = 1 / x^2, x from 8 on
__device__ __forceinline__ double rk_stirling(double z) {
    return rk_horner(z, -0.020877753081831048, 0.0062093376108188032, -0.0019149917479858653,
        0.00084173280251225542, -0.00059523802494010727, 0.00079365079351567365, -0.0027777777777776786,
        0.083333333333333329);
}

// |sin(pi u)| / pi for u in [-1/2, 1/2]
__device__ __forceinline__ double rk_sinpi_over_pi(double u) {
    return fabs(__fma_rn(u * (u * u), rk_horner(u * u, 2.4499342019861561e-07, -6.9720676648458735e-06,
        0.00014842783057837549, -0.0023460808937994719, 0.026147847805463274, -0.19075182412150141,
        0.81174242528334006, -1.6449340668482264), u));
}

// log |Gamma(x)|
__device__ __forceinline__ double rk_lgamma(double x) {
    double a = fabs(x), r;
    if (!(a < RK_INF64)) return x != x ? x : RK_INF64;
    if (x <= 0.0 && floor(x) == x) return RK_INF64;
    int k = 8;
    if (a < 8.0) {
        k = (int)a;
        double u = a - (double)k, product = a - 1.0;
        r = u * (u - 1.0) * rk_lgamma_core(u - 0.5);
        for (int i = 2; i < k; ++i) product = product * (a - (double)i);
        r = r + (k >= 2 ? rk_log(product) : 0.0);
    } else {
        double inverse = __ddiv_rn(1.0, a);
        double rest = __fma_rn(rk_stirling(inverse * inverse), inverse, 0.41893853320467274);
        r = __fma_rn(a - 0.5, rk_log(a) - 1.0, rest);
    }
    if (x > 0.0) return k == 0 ? r - rk_log(a) : r;
    double s = rk_sinpi_over_pi(a - rint(a));
    return -rk_log(k == 0 ? s : a * s) - r;
}

// log(exp(x) + exp(y))
__device__ __forceinline__ double rk_logaddexp(double x, double y) {
    double high = x > y ? x : y, low = x > y ? y : x;
    if (high != high || low != low) return RK_NAN64;
    if (x == y) return x + RK_LN2_64;
    return high + rk_log1p(rk_exp(low - high));
}

// A pair (m, s) stands for s exp(m). Add the pair (m_next, s_next) to it.
__device__ __forceinline__ void rk_join_sums(double &m, double &s, double m_next, double s_next) {
    if (m_next > m) {
        s = __fma_rn(s, rk_exp(m - m_next), s_next);
        m = m_next;
    } else if (m == m_next) {
        s = s + s_next;
    } else {
        s = __fma_rn(s_next, rk_exp(m_next - m), s);
    }
}

// log(s exp(m)); -inf where s is 0
__device__ __forceinline__ double rk_log_of_sum(double m, double s) { return s != 0.0 ? m + rk_log(s) : -RK_INF64; }

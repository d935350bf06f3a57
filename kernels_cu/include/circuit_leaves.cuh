// Functions of leaves that are evaluated, in double: NAME(x, p, c) is the logarithm of the probability of x,
// NAME_statistic(x, p, c, t) sets t to what the M step needs, without one it is x. p holds the parameters of a node, c the
// three constants of its leaf. Mirror: rpukit/circuits/_mirror/leaf_functions.py.
#pragma once
#include "circuit_rows.cuh"
#include "rk_special64.cuh"

#define HALF_LOG_2PI 0.9189385332046727
#define LOG_2PI 1.8378770664093453

// Sine and cosine of a moderate x.
__device__ __forceinline__ double2 rk_sin_cos(double x) {
    double n = rint(x * 0.6366197723675814);
    double r = __fma_rn(-n, 6.123233995736766e-17, __fma_rn(-n, 1.5707963267948966, x));
    double z = r * r, turn = n - 4.0 * floor(n * 0.25);
    double tail = rk_horner(z, 2.8114572543455206e-15, -7.6471637318198164e-13, 1.6059043836821613e-10,
        -2.505210838544172e-08, 2.7557319223985893e-06, -0.00019841269841269841, 0.0083333333333333332,
        -0.16666666666666666);
    double s = __fma_rn(r * z, tail, r);
    double c = rk_horner(z, 4.7794773323873853e-14, -1.1470745597729725e-11, 2.08767569878681e-09,
        -2.7557319223985888e-07, 2.4801587301587302e-05, -0.0013888888888888889, 0.041666666666666664, -0.5, 1.0);
    if (turn == 1.0) return make_double2(c, -s);
    if (turn == 2.0) return make_double2(-s, -c);
    if (turn == 3.0) return make_double2(-c, s);
    return make_double2(s, c);
}

// log I0(x) - x for x from 0, I0 the modified Bessel function of order 0; from 20 on by its asymptotic series.
__device__ __forceinline__ double rk_log_bessel(double x) {
    double whole = 1.0, term = 1.0;
    if (x < 20.0) {
        double y = 0.25 * (x * x);
        for (int k = 1; k < 64; ++k) {
            term = term * (y / (double)(k * k));
            whole = whole + term;
            if (term < 1e-17 * whole) break;
        }
        return rk_log(whole) - x;
    }
    for (int k = 1; k < 31; ++k) {
        double odd = (double)(2 * k - 1);
        term = term * ((odd * odd) / ((double)(8 * k) * x));
        whole = whole + term;
    }
    return rk_log(whole) - (HALF_LOG_2PI + 0.5 * rk_log(x));
}

// log p + x log(1 - p)
__device__ __forceinline__ double geometric_leaf(double x, const double *p, const double *) {
    double miss = x == 0.0 ? 0.0 : x * rk_log1p(-p[0]);
    return rk_log(p[0]) + miss;
}

// x failures before c[0] successes.
__device__ __forceinline__ double negative_binomial_leaf(double x, const double *p, const double *c) {
    double ways = (rk_lgamma(x + c[0]) - rk_lgamma(c[0])) - rk_lgamma(x + 1.0);
    double miss = x == 0.0 ? 0.0 : x * rk_log1p(-p[0]);
    return (ways + c[0] * rk_log(p[0])) + miss;
}

// log rate - rate x
__device__ __forceinline__ double exponential_leaf(double x, const double *p, const double *) {
    return x >= 0.0 ? rk_log(p[0]) - p[0] * x : IMPOSSIBLE;
}

// Shape p[0], rate p[1].
__device__ __forceinline__ double gamma_leaf(double x, const double *p, const double *) {
    if (!(x > 0.0)) return IMPOSSIBLE;
    double head = p[0] * rk_log(p[1]) - rk_lgamma(p[0]);
    return (head + (p[0] - 1.0) * rk_log(x)) - p[1] * x;
}
// a = x / mean - 1, and log(1 + a) - a.
__device__ __forceinline__ void gamma_leaf_statistic(double x, const double *p, const double *, double *t) {
    if (!(x > 0.0)) return;
    t[0] = (x * p[1]) / p[0] - 1.0;
    t[1] = rk_log1p(t[0]) - t[0];
}

// The logarithm is normal.
__device__ __forceinline__ double log_normal_leaf(double x, const double *p, const double *) {
    if (!(x > 0.0)) return IMPOSSIBLE;
    double y = rk_log(x), z = (y - p[0]) / p[1];
    return (-0.5 * (z * z) - (HALF_LOG_2PI + rk_log(p[1]))) - y;
}
__device__ __forceinline__ void log_normal_leaf_statistic(double x, const double *p, const double *, double *t) {
    if (!(x > 0.0)) return;
    t[0] = rk_log(x) - p[0];
    t[1] = t[0] * t[0];
}

// kappa (cos d - 1) - (log(2 pi I0(kappa)) - kappa), d = x - mu; 1 - cos d = 2 sin(d / 2)^2.
__device__ __forceinline__ double von_mises_leaf(double x, const double *p, const double *) {
    double s = rk_sin_cos(0.5 * (x - p[0])).x;
    return (-2.0 * p[1] * (s * s) - LOG_2PI) - rk_log_bessel(p[1]);
}
__device__ __forceinline__ void von_mises_leaf_statistic(double x, const double *p, const double *, double *t) {
    double2 half = rk_sin_cos(0.5 * (x - p[0]));
    t[0] = 2.0 * (half.x * half.x);
    t[1] = 2.0 * (half.x * half.y);
}

// c[1] - log scale - (c[0] + 1) / 2 log(1 + z^2 / c[0])
__device__ __forceinline__ double student_t_leaf(double x, const double *p, const double *c) {
    double z = (x - p[0]) / p[1];
    return (c[1] - rk_log(p[1])) - 0.5 * (c[0] + 1.0) * rk_log1p((z * z) / c[0]);
}
// The expected precision w of x among normal ones, w d, w d^2, d the distance from the mean.
__device__ __forceinline__ void student_t_leaf_statistic(double x, const double *p, const double *c, double *t) {
    double d = x - p[0], z = d / p[1];
    t[0] = (c[0] + 1.0) / (c[0] + z * z);
    t[1] = t[0] * d;
    t[2] = t[1] * d;
}

// Built-in functions by number, as rpukit/circuits/ops/evaluated.py counts them.
__device__ __forceinline__ double built_in_leaf(int function, double x, const double *p, const double *c) {
    switch (function) {
    case 0: return geometric_leaf(x, p, c);
    case 1: return negative_binomial_leaf(x, p, c);
    case 2: return exponential_leaf(x, p, c);
    case 3: return gamma_leaf(x, p, c);
    case 4: return log_normal_leaf(x, p, c);
    case 5: return von_mises_leaf(x, p, c);
    default: return student_t_leaf(x, p, c);
    }
}
__device__ __forceinline__ void built_in_statistic(int function, double x, const double *p, const double *c, double *t) {
    switch (function) {
    case 3: return gamma_leaf_statistic(x, p, c, t);
    case 4: return log_normal_leaf_statistic(x, p, c, t);
    case 5: return von_mises_leaf_statistic(x, p, c, t);
    case 6: return student_t_leaf_statistic(x, p, c, t);
    default: t[0] = x;
    }
}

#include "user_leaf.cuh"

// Elementwise functions of tiles by their numbers, as in KINDS of rpukit/tiled/ops/elementwise.py.
// Mirror: rpukit/tiled/_mirror/elementwise.py. Source: docs/semantics/tiled.md, elementwise ops.
#pragma once
#include "rk_special64.cuh"
#include "rk_real.cuh"

// Distribution function of a standard normal, and the slope of x times it.
__device__ __forceinline__ REAL phi(REAL x) { return (REAL)0.5 * ((REAL)1 + rk_erf(x * (REAL)0.7071067811865476)); }
__device__ __forceinline__ REAL gelu_slope(REAL x) {
    return rk_fma(x, (REAL)0.3989422804014327 * rk_exp((REAL)-0.5 * x * x), phi(x));
}

__device__ __forceinline__ REAL between(REAL x, REAL low, REAL high) { return x < low ? low : x > high ? high : x; }

// Power of a whole exponent, of the root of the base where `root` is 1.
__device__ __forceinline__ REAL power(REAL a, REAL exponent, REAL root) {
    if (root > (REAL)0) a = rk_sqrt(a);
    REAL r = (REAL)1;
    for (int k = (int)rk_abs(exponent); k > 0; k >>= 1, a = a * a)
        if (k & 1) r = r * a;
    return exponent < (REAL)0 ? (REAL)1 / r : r;
}

// Inputs of a function; its constants come after them.
__device__ constexpr int inputs_of(int kind) {
    return kind == 15 ? 5 : kind == 16 ? 7
        : (kind >= 1 && kind <= 4) || kind == 7 || kind == 9 || kind == 11 || kind == 13 || kind == 14 || kind > 25 ? 2 : 1;
}

// The function of this number, of inputs a to g and constants by and to; it reads those that it has.
template <int KIND_>
__device__ __forceinline__ REAL pointwise(REAL a, REAL b, REAL c, REAL d, REAL e, REAL f, REAL g, REAL by, REAL to) {
    if constexpr (KIND_ == 0) return a;
    if constexpr (KIND_ == 1) return a + b;
    if constexpr (KIND_ == 2) return a - b;
    if constexpr (KIND_ == 3) return a * b;
    if constexpr (KIND_ == 4) return a / b;
    if constexpr (KIND_ == 5) return a / by;
    if constexpr (KIND_ == 6) return a > (REAL)0 ? a : (REAL)0;
    if constexpr (KIND_ == 7) return b > (REAL)0 ? a : (REAL)0;
    if constexpr (KIND_ == 8) return a * phi(a);
    if constexpr (KIND_ == 9) return a * gelu_slope(b);
    if constexpr (KIND_ == 10) return rk_tanh(a);
    if constexpr (KIND_ == 11) return a * rk_fma(-b, b, (REAL)1);
    if constexpr (KIND_ == 12) return rk_sigmoid(a);
    if constexpr (KIND_ == 13) return a * (b * ((REAL)1 - b));
    if constexpr (KIND_ == 14) return ((a - b) + (a - b)) / by;
    if constexpr (KIND_ == 15) return rk_fma((a - b) * c, d, e);
    if constexpr (KIND_ == 16)  // gradient of a normalised element: dy, x, scale, mean, inv_std, dscale, dbias; count
        return c * e / by * rk_fma(-((b - d) * e), f, by * a - g);
    if constexpr (KIND_ == 17) return between(a, by, to);
    if constexpr (KIND_ == 18) return a < (REAL)0 ? by * a : a;
    if constexpr (KIND_ == 19) return between(rk_fma(by, a, to), (REAL)0, (REAL)1);
    if constexpr (KIND_ == 20) return a * between(rk_fma(a, (REAL)0.16666666666666666, (REAL)0.5), (REAL)0, (REAL)1);
    if constexpr (KIND_ == 21) return rk_sqrt(a);
    if constexpr (KIND_ == 22) return rk_exp(a);
    if constexpr (KIND_ == 23) return rk_log(a);
    if constexpr (KIND_ == 24) return rk_erf(a);
    if constexpr (KIND_ == 25) return power(a, by, to);
    if constexpr (KIND_ == 26) return by < b && b < to ? a : (REAL)0;
    if constexpr (KIND_ == 27) return b > (REAL)0 ? a : by * a;
    if constexpr (KIND_ == 28) return (REAL)0 < b && b < (REAL)1 ? a * by : (REAL)0;
    if constexpr (KIND_ == 29)
        return b <= (REAL)-3 ? (REAL)0 : b >= (REAL)3 ? a : a * rk_fma(b, (REAL)0.3333333333333333, (REAL)0.5);
    if constexpr (KIND_ == 30) return a * ((REAL)1.1283791670955126 * rk_exp(-(b * b)));
}

// A tile: elementwise op of up to seven inputs, with broadcasting.
//
//   ints: rows, kind, lengths of four axes, strides of seven inputs and y along them; floats: constants, if any
//   a to g, y: packed rectangles; those that the kind does not have are not read
//
// One thread an element. Macros: KIND (see function), REAL, FLAT: where all that moves lies as y does, the set of inputs
// that do move, a bit each; else -1.
// mirror: rpukit/tiled/_mirror/elementwise.py::tiled_map
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: KIND=8
// check: KIND=9
// check: KIND=10 REAL=double
// check: KIND=16
// check: KIND=7 FLAT=3
// check: KIND=17
// check: KIND=20
// check: KIND=23 REAL=double
// check: KIND=25
// check: KIND=29
// check: KIND=30
// source: docs/semantics/tiled.md, elementwise ops.
#include "rk_special64.cuh"
#include "rk_real.cuh"

#ifndef KIND
#define KIND 0
#endif
#ifndef FLAT
#define FLAT -1
#endif

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

struct Inputs { const REAL *b, *c, *d, *e, *f, *g; };

__device__ __forceinline__ REAL function(REAL a, const Inputs &in, REAL by, const REAL *s) {
#if KIND == 0
    return a;
#elif KIND == 1
    return a + *in.b;
#elif KIND == 2
    return a - *in.b;
#elif KIND == 3
    return a * *in.b;
#elif KIND == 4
    return a / *in.b;
#elif KIND == 5
    return a / by;
#elif KIND == 6
    return a > (REAL)0 ? a : (REAL)0;
#elif KIND == 7
    return *in.b > (REAL)0 ? a : (REAL)0;
#elif KIND == 8
    return a * phi(a);
#elif KIND == 9
    return a * gelu_slope(*in.b);
#elif KIND == 10
    return rk_tanh(a);
#elif KIND == 11
    return a * rk_fma(-*in.b, *in.b, (REAL)1);
#elif KIND == 12
    return rk_sigmoid(a);
#elif KIND == 13
    return a * (*in.b * ((REAL)1 - *in.b));
#elif KIND == 14
    REAL w = a - *in.b;
    return (w + w) / by;
#elif KIND == 15
    return rk_fma((a - *in.b) * *in.c, *in.d, *in.e);
#elif KIND == 17
    return between(a, s[0], s[1]);
#elif KIND == 18
    return a < (REAL)0 ? by * a : a;
#elif KIND == 19
    return between(rk_fma(s[0], a, s[1]), (REAL)0, (REAL)1);
#elif KIND == 20
    return a * between(rk_fma(a, (REAL)0.16666666666666666, (REAL)0.5), (REAL)0, (REAL)1);
#elif KIND == 21
    return rk_sqrt(a);
#elif KIND == 22
    return rk_exp(a);
#elif KIND == 23
    return rk_log(a);
#elif KIND == 24
    return rk_erf(a);
#elif KIND == 25
    return power(a, s[0], s[1]);
#elif KIND == 26
    return s[0] < *in.b && *in.b < s[1] ? a : (REAL)0;
#elif KIND == 27
    return *in.b > (REAL)0 ? a : by * a;
#elif KIND == 28
    return (REAL)0 < *in.b && *in.b < (REAL)1 ? a * by : (REAL)0;
#elif KIND == 29
    REAL inner = a * rk_fma(*in.b, (REAL)0.3333333333333333, (REAL)0.5);
    return *in.b <= (REAL)-3 ? (REAL)0 : *in.b >= (REAL)3 ? a : inner;
#elif KIND == 30
    return a * ((REAL)1.1283791670955126 * rk_exp(-(*in.b * *in.b)));
#else  // 16, gradient of a normalised element; inputs dy, x, scale, mean, inv_std, dscale, dbias
    REAL h = (*in.b - *in.d) * *in.e;
    return *in.c * *in.e / by * rk_fma(-h, *in.f, by * a - *in.g);
#endif
}

extern "C" __global__ void __launch_bounds__(256)
tiled_map(const i64 *ints, const REAL *floats, const REAL *a, const REAL *b, const REAL *c, const REAL *d,
          const REAL *e, const REAL *f, const REAL *g, REAL *y) {
#if FLAT >= 0
    const u32 at = blockIdx.x * 256 + threadIdx.x;
    if (at >= (u32)(ints[0] * ints[5])) return;
    u32 p[7];
    for (int k = 0; k < 7; k++) p[k] = FLAT >> k & 1 ? at : 0u;
    Inputs in = {b + p[1], c + p[2], d + p[3], e + p[4], f + p[5], g + p[6]};
    y[at] = function(a[p[0]], in, floats ? floats[0] : (REAL)1, floats);
#else
    i64 n1 = ints[3], n2 = ints[4], n3 = ints[5], at = (i64)blockIdx.x * 256 + threadIdx.x, row = at / n3;
    if (row >= ints[0]) return;
    const i64 i[4] = {row / (n1 * n2), row / n2 % n1, row % n2, at % n3}, *s = ints + 6;
    i64 p[8];
    for (int k = 0; k < 8; k++, s += 4) p[k] = i[0] * s[0] + i[1] * s[1] + i[2] * s[2] + i[3] * s[3];
    Inputs in = {b + p[1], c + p[2], d + p[3], e + p[4], f + p[5], g + p[6]};
    y[p[7]] = function(a[p[0]], in, floats ? floats[0] : (REAL)1, floats);
#endif
}

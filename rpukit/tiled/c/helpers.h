/* What several kernels need. */
#ifndef HELPERS_H
#define HELPERS_H

#include "exact.h"
#include "team.h"

/* A loop over sums that are kept in registers; `wide` is known when the code is compiled. */
#ifdef __clang__
#define LANES _Pragma("clang loop unroll(full)") for (int k = 0; k < wide; k++)
#else
#define LANES _Pragma("GCC unroll 4") for (int k = 0; k < wide; k++)
#endif

/* Where an element of four indices lies. */
#define PLACE(strides, i, j, k, l) ((i) * (strides)[0] + (j) * (strides)[1] + (k) * (strides)[2] + (l) * (strides)[3])

/* Of the points begin, begin + step, ...: the first that is at least 0, and the end of those below `size`; at most n. */
static inline int32_t first_inside(int32_t begin, int32_t step, int32_t n) {
    int32_t first = 0;
    for (; begin < 0 && first < n; begin += step) first++;
    return first;
}

static inline int32_t end_inside(int32_t begin, int32_t step, int32_t n, int32_t size) {
    int32_t end = n;
    for (int32_t last = begin + (n - 1) * step; last >= size && end > 0; last -= step) end--;
    return end;
}

static inline float map_phi(float x) { return 0.5f * (1.0f + exact_erf(x * 0.7071067811865476f)); }

static inline float map_between(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* Power of a whole exponent, of the root of the base where `root` is 1. */
static inline float map_power(float a, float exponent, float root) {
    float r = 1.0f;
    if (root > 0.0f) a = exact_sqrt(a);
    for (int32_t k = (int32_t)exact_abs(exponent); k > 0; k >>= 1, a = a * a)
        if (k & 1) r = r * a;
    return exponent < 0.0f ? 1.0f / r : r;
}

static inline float map_hard_swish_grad(float dy, float x) {
    if (x <= -3.0f) return 0.0f;
    return x >= 3.0f ? dy : dy * fma32(x, 0.3333333333333333f, 0.5f);
}

/* Integer from -127 to 127 of x in units of the scale; 0 of NaN. */
static inline int32_t narrow_integer(float x, float scale) {
    float u = x / scale;
    if (u >= 127.0f) return 127;
    if (u <= -127.0f) return -127;
    return u == u ? (int32_t)((u + 12582912.0f) - 12582912.0f) : 0;
}

/* Bits of float16; finite numbers beyond 65504 become that. */
static inline uint16_t narrow_half(float x) {
    uint32_t word = bits_of(x), sign = word >> 16 & 0x8000, u = word & 0x7fffffff;
    if (u > 0x7f800000) return 0x7e00;
    if (u >= 0x477ff000) return (uint16_t)(sign | (u == 0x7f800000 ? 0x7c00 : 0x7bff));
    if (u < 0x38800000) return (uint16_t)(sign | (bits_of(float_of(u) * 16777216.0f + 8388608.0f) - 0x4b000000));
    return (uint16_t)(sign | (((u + 0xfff + (u >> 13 & 1)) >> 13) - (112 << 10)));
}

static inline float narrow_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, e = half >> 10 & 31, m = half & 1023;
    if (e == 0) return float_of(sign | bits_of((float)m * 5.9604644775390625e-08f));
    return float_of(sign | (e == 31 ? 255 : e + 112) << 23 | m << 13);
}

#endif

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

#endif

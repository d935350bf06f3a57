/* Elementary functions in float32 from additions, multiplications, divisions, fma and square roots
 * only: the bits of rpukit/_exact/math.py and kernels_cu/include/rk_math.cuh, on any machine with IEEE
 * floats. Compile with -ffp-contract=off. */
#ifndef EXACT_H
#define EXACT_H

#include <stdint.h>

typedef union { float number; uint32_t bits; } float_bits_t;
typedef union { double number; uint64_t bits; } double_bits_t;

static inline uint32_t bits_of(float x) { return ((float_bits_t){.number = x}).bits; }
static inline float float_of(uint32_t u) { return ((float_bits_t){.bits = u}).number; }

/* x y + z rounded once, without an instruction for it: the product is exact in float64, and their sum is rounded to
 * odd, so that rounding it to float32 rounds once. */
static inline float soft_fma(float x, float y, float z) {
    double product = (double)x * (double)y, sum = product + (double)z, back = sum - product;
    double lost = (product - (sum - back)) + ((double)z - back);
    double_bits_t odd = {.number = sum};
    if ((odd.bits >> 52 & 0x7ff) != 0x7ff && lost != 0.0 && !(odd.bits & 1)) odd.bits += (lost > 0.0) == (sum > 0.0) ? 1 : -1;
    return (float)odd.number;
}

#if defined(__FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__) || defined(__riscv_f)
static inline float fma32(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
#elif defined(__linux__) || defined(__APPLE__)
#include <math.h>
static inline float fma32(float x, float y, float z) { return fmaf(x, y, z); }
#else /* newlib's fmaf rounds twice */
static inline float fma32(float x, float y, float z) { return soft_fma(x, y, z); }
#endif

#define EXACT_INF float_of(0x7f800000u)
#define EXACT_NAN float_of(0x7fc00000u)

/* A polynomial in x, leading coefficient first, one fma a step. */
static inline float horner(float x, const float *c, int n) {
    float r = c[0];
    for (int i = 1; i < n; i++) r = fma32(r, x, c[i]);
    return r;
}

static inline float exact_abs(float x) { return float_of(bits_of(x) & 0x7fffffffu); }

/* Square root of a positive number, rounded to nearest: by the instruction where there is one, else digit by digit
 * over the integer 2^(2 * 24) of the mantissa. */
#if defined(__SSE__) && defined(__x86_64__)
static inline float positive_sqrt(float x) { __asm__("sqrtss %0, %0" : "+x"(x)); return x; }
#elif defined(__ARM_FP) && defined(__arm__) && __ARM_FP & 4
static inline float positive_sqrt(float x) { __asm__("vsqrt.f32 %0, %0" : "+t"(x)); return x; }
#elif defined(__riscv_f)
static inline float positive_sqrt(float x) { __asm__("fsqrt.s %0, %0" : "+f"(x)); return x; }
#else
static inline float positive_sqrt(float x) {
    uint32_t u = bits_of(x);
    int32_t e = (int32_t)(u >> 23) - 150;
    uint64_t m = u & 0x7fffffu;
    if (u >> 23) m |= 0x800000u;
    else e++; /* subnormal */
    while (m < 0x800000u) m <<= 1, e--;
    if (e & 1) m <<= 1, e--;
    m <<= 26; /* of 50 or 51 bits: the root has 25 or 26, one or two more than a float */
    e -= 26;
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << 25; bit; bit >>= 1)
        if ((root | bit) * (root | bit) <= m) root |= bit;
    uint64_t sticky = root * root != m; /* below the last bit of the root */
    uint64_t wide = root << 1 | sticky;
    int32_t drop = wide >> 26 ? 3 : 2; /* bits beyond the 24 of a float */
    uint64_t half = (uint64_t)1 << (drop - 1), rest = wide & ((half << 1) - 1), kept = wide >> drop;
    if (rest > half || (rest == half && (kept & 1))) kept++;
    int32_t scale = e / 2 - 1 + drop;
    return (float)(uint32_t)kept * float_of((uint32_t)(scale + 127) << 23);
}
#endif

static inline float exact_sqrt(float x) {
    if (!(x > 0.0f) || x == EXACT_INF) return x < 0.0f ? EXACT_NAN : x;
    return positive_sqrt(x);
}

static inline float exact_scale(float r, int j) {
    int half = j >= 0 ? j / 2 : -((1 - j) / 2); /* rounded down */
    return r * float_of((uint32_t)(half + 127) << 23) * float_of((uint32_t)(j - half + 127) << 23);
}

static inline float exact_exp(float x) {
    static const float c[] = {0.00138146058f, 0.00836871006f, 0.041668389f, 0.166665211f, 0.49999994f, 1.0f, 1.0f};
    float a = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
    if (x != x) return x;
    float j = fma32(a, 1.442695f, 12582912.0f) - 12582912.0f;
    float f = fma32(j, -1.42860677e-06f, fma32(j, -0.693145752f, a));
    return exact_scale(horner(f, c, 7), (int)j);
}

static inline float exact_log(float x) {
    static const float c[] = {-0.129489228f, 0.140047655f, -0.121671662f, 0.140011594f, -0.166823044f,
                              0.20010747f,   -0.249997169f, 0.333332092f, -0.5f};
    if (!(x > 0.0f) || x == EXACT_INF) return x == 0.0f ? -EXACT_INF : x < 0.0f ? EXACT_NAN : x;
    int small = x < 1.17549435e-38f;
    float scaled = small ? x * 8388608.0f : x;
    uint32_t e = (bits_of(scaled) - 0x3f2aaaabu) & 0xff800000u;
    float f = float_of(bits_of(scaled) - e) - 1.0f;
    float n = fma32((float)(int32_t)e, 1.1920929e-07f, small ? -23.0f : 0.0f);
    return fma32(n, 0.693147182f, fma32(f * f, horner(f, c, 9), f));
}

static inline float exact_expm1(float x) {
    static const float c[] = {0.000198476817f, 0.00139647303f, 0.00833345484f, 0.0416660123f, 0.166666657f, 0.5f};
    float a = x < -18.0f ? -18.0f : x > 89.0f ? 89.0f : x;
    if (x != x) return x;
    float j = exact_abs(a) < 0.41f ? 0.0f : fma32(a, 1.442695f, 12582912.0f) - 12582912.0f;
    float whole = fma32(j, -0.693145752f, a), f = fma32(j, -1.42860677e-06f, whole);
    float lost = fma32(j, -1.42860677e-06f, whole - f);
    float r = f + fma32(f * f, horner(f, c, 6), lost);
    if (j == 0.0f) return x == 0.0f ? x : r;
    float s = float_of((uint32_t)((int)j - 1 + 127) << 23);
    return 2.0f * (j < 25.0f || j > 27.0f ? fma32(s, r, s - 0.5f) : fma32(s, r, -0.5f) + s);
}

static inline float exact_sigmoid(float x) {
    float e = exact_exp(-exact_abs(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

static inline float exact_tanh(float x) {
    float a = exact_abs(x), e = exact_expm1(2.0f * (a > 10.0f ? 10.0f : a));
    float t = a > 9.2f ? 1.0f : e / (e + 2.0f);
    return x == x ? (x < 0.0f ? -t : x == 0.0f ? x : t) : x;
}

static inline float exact_erf(float x) {
    static const float near[] = {7.85386728e-05f, -0.000801019545f, 0.00518832775f, -0.0268538129f,
                                 0.112835854f,    -0.37612626f,     0.128379166f};
    static const float far[] = {-2.1697575e-05f, 0.000137706156f, -0.000730212487f, 0.00357051939f,
                                -0.0164658111f,  -0.923750997f,   -4.41816092f,     -5.36494112f};
    float a = exact_abs(x);
    if (a < 1.0f) return fma32(x, horner(x * x, near, 7), x);
    if (x != x) return x;
    float r = 1.0f - exact_exp(horner((a > 3.95f ? 3.95f : a) - 2.0f, far, 8));
    return x < 0.0f ? -r : r;
}

#endif

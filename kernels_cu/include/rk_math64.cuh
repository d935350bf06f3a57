// Elementary functions in float64; the same names as in rk_math.cuh, overloaded. Mirror:
// rpukit/_exact/math64.py. Coefficients: tools/fit_math.py. Largest errors seen: docs/math.md.
#pragma once
#include "rk_math.cuh"

#define RK_INF64 __longlong_as_double(0x7ff0000000000000ll)
#define RK_NAN64 __longlong_as_double(0x7ff8000000000000ll)
#define RK_LN2_64 0.6931471805599453  // with the next, 107 bits
#define RK_LN2_REST_64 2.3190468138462996e-17
#define RK_LN2_HIGH_64 0.6931471805592082  // 40 bits
#define RK_LN2_LOW_64 7.371002565167799e-13
#define RK_LOG2E_64 1.4426950408889634
#define RK_ROUND_64 6755399441055744.0  // added and taken away: to the nearest integer

__device__ __forceinline__ double rk_fma(double a, double b, double c) { return __fma_rn(a, b, c); }

__device__ __forceinline__ u64 rk_bits(double x) { return (u64)__double_as_longlong(x); }
__device__ __forceinline__ double rk_from_bits(u64 u) { return __longlong_as_double((i64)u); }

// A polynomial in x, leading coefficient first, one fma a step.
__device__ __forceinline__ double rk_horner(double, double r) { return r; }
template <class... Rest>
__device__ __forceinline__ double rk_horner(double x, double r, double c, Rest... rest) {
    return rk_horner(x, __fma_rn(r, x, c), rest...);
}

// (log(1 + f) - f) / f^2 for f in [-1/3, 1/3]
__device__ __forceinline__ double rk_log1p_tail(double f) {
    return rk_horner(f, -0.083481213187014541, 0.085036736950232908, -0.038304401260635626,
        0.041731453602499045, -0.05749383460939661, 0.060523194058418661, -0.062302950065388663,
        0.066505802694704699, -0.071441460008358451, 0.076932726913905888, -0.083332786156693872,
        0.090908723105000172, -0.10000001477756128, 0.11111111974815362, -0.12499999975905463,
        0.1428571427409078, -0.16666666666880792, 0.20000000000077317, -0.24999999999999156,
        0.33333333333333154, -0.5);
}

// Exponent bits of the power of two that brings a normal positive x to [2/3, 4/3), and their number.
__device__ __forceinline__ u64 rk_exponent(double x) { return (rk_bits(x) - 0x3fe5555555555555ull) & 0xfff0000000000000ull; }
__device__ __forceinline__ double rk_exponent_value(u64 e) { return (double)((i64)e >> 52); }

__device__ __forceinline__ double rk_log(double x) {
    bool small = x < 2.2250738585072014e-308;  // zero, subnormal or negative
    double scaled = small ? x * 18014398509481984.0 : x;
    u64 e = rk_exponent(scaled);
    double f = rk_from_bits(rk_bits(scaled) - e) - 1.0;
    double n = rk_exponent_value(e) - (small ? 54.0 : 0.0);
    double core = f + __fma_rn(f * f, rk_log1p_tail(f), n * RK_LN2_REST_64);
    double r = __fma_rn(n, RK_LN2_64, core);
    if (x < RK_INF64 && x > 0.0) return r;
    return x == 0.0 ? -RK_INF64 : x < 0.0 ? RK_NAN64 : x;  // inf and NaN stay
}

// 1 + x is m 2^n with f = m - 1; what the roundings of f and of the leading sum lose is carried along.
__device__ __forceinline__ double rk_log1p(double x) {
    u64 e = fabs(x) < 0.25 ? 0ull : rk_exponent(1.0 + x);
    double t = rk_from_bits(0x3ff0000000000000ull - e), n = rk_exponent_value(e);  // t = 2^-n
    double f = __fma_rn(x, t, t - 1.0), lost = __fma_rn(x, t, -(f - (t - 1.0)));
    if (x > 1.0e17) {  // the 1 does not count
        f = rk_from_bits(rk_bits(x) - e) - 1.0;
        lost = 0.0;
    }
    double lead = n * RK_LN2_HIGH_64, sum = lead + f;
    lost = __fma_rn(lost, 1.0 - f, n == 0.0 ? 0.0 : f - (sum - lead));
    double r = sum + __fma_rn(f * f, rk_log1p_tail(f), __fma_rn(n, RK_LN2_LOW_64, lost));
    if (x > -1.0 && x < RK_INF64) return x == 0.0 ? x : r;
    return x == -1.0 ? -RK_INF64 : x < -1.0 ? RK_NAN64 : x;
}

// r 2^j for j in [-1080, 1024], rounded once where the result is subnormal
__device__ __forceinline__ double rk_scale(double r, int j) {
    int half = j >> 1;
    return r * rk_from_bits((u64)(half + 1023) << 52) * rk_from_bits((u64)(j - half + 1023) << 52);
}

// exp(f) for f in [-ln 2 / 2, ln 2 / 2]
__device__ __forceinline__ double rk_exp_core(double f) {
    return rk_horner(f, 2.5000050539106446e-08, 2.763023348418544e-07, 2.755758633083371e-06,
        2.4801493137423171e-05, 0.00019841269506714441, 0.0013888888943596456, 0.0083333333334943589,
        0.041666666666530273, 0.16666666666666413, 0.50000000000000111, 1.0, 1.0);
}

__device__ __forceinline__ double rk_exp(double x) {
    double a = x < -746.0 ? -746.0 : x > 710.0 ? 710.0 : x;
    double j = __fma_rn(a, RK_LOG2E_64, RK_ROUND_64) - RK_ROUND_64;
    double f = __fma_rn(j, -RK_LN2_REST_64, __fma_rn(j, -RK_LN2_64, a));
    return x == x ? rk_scale(rk_exp_core(f), (int)j) : x;
}

__device__ __forceinline__ double rk_expm1(double x) {
    double a = x < -40.0 ? -40.0 : x > 710.0 ? 710.0 : x;
    double j = fabs(a) < 0.41 ? 0.0 : __fma_rn(a, RK_LOG2E_64, RK_ROUND_64) - RK_ROUND_64;
    double whole = __fma_rn(j, -RK_LN2_64, a), f = __fma_rn(j, -RK_LN2_REST_64, whole);
    double lost = __fma_rn(j, -RK_LN2_REST_64, whole - f);
    double tail = rk_horner(f, 2.0874699356513372e-09, 2.5135608901362254e-08, 2.7557498868576763e-07,
        2.7557157936583006e-06, 2.4801586893537948e-05, 0.00019841269982583725, 0.0013888888889229953,
        0.0083333333332793399, 0.041666666666665589, 0.16666666666666732, 0.5);
    double r = f + __fma_rn(f * f, tail, lost);
    if (x != x) return x;
    if (j == 0.0) return x == 0.0 ? x : r;
    double s = rk_from_bits((u64)((int)j + 1022) << 52);  // 2^j / 2, see the float32 one
    return 2.0 * (j < 54.0 || j > 56.0 ? __fma_rn(s, r, s - 0.5) : __fma_rn(s, r, -0.5) + s);
}

__device__ __forceinline__ double rk_sqrt(double x) { return __dsqrt_rn(x); }
__device__ __forceinline__ double rk_reciprocal(double x) { return __ddiv_rn(1.0, x); }

__device__ __forceinline__ double rk_sigmoid(double x) {
    double e = rk_exp(-fabs(x));
    return __ddiv_rn(x < 0.0 ? e : 1.0, 1.0 + e);
}

__device__ __forceinline__ double rk_tanh(double x) {
    double a = fabs(x), e = rk_expm1(2.0 * (a > 22.0 ? 22.0 : a));
    double t = a > 20.0 ? 1.0 : __ddiv_rn(e, e + 2.0);
    return x == x ? (x < 0.0 ? -t : x == 0.0 ? x : t) : x;
}

// Standard normal quantile of p in (0, 1); -inf at 0, inf at 1, NaN outside. Odd about 1/2.
__device__ __forceinline__ double rk_normal_quantile(double p) {
    double x = __fma_rn(2.0, p, -1.0);
    double w = -rk_log((p + p) * __fma_rn(-2.0, p, 2.0)), s = __dsqrt_rn(w), y;  // w = -log(1 - x^2)
    if (w < 5.0)
        y = rk_horner(w - 2.5, 1.7559442353425844e-19, 3.6865445047834324e-18, -3.5925716572678179e-17,
            -1.4626052596478822e-16, 2.6556579730210847e-15, -4.4566492324323584e-15, -1.0746186230353704e-13,
            7.594307857223641e-13, 1.2882575224112936e-12, -4.3992234029899424e-11, 1.6915235336338451e-10,
            1.2831341174457772e-09, -1.536001688584025e-08, 1.8974209025566249e-08, 6.7701970140626806e-07,
            -4.8318297582626579e-06, -7.0655235301079611e-06, 0.0003086524838219947, -0.001771596512917675,
            -0.005907619380164101, 0.34880202439905439, 2.1233134670146701);
    else if (s < 4.0)
        y = rk_horner(s - 3.125, -3.7802063986049551e-09, 5.487214754806579e-09, 2.0727636298432893e-08,
            -6.5475532469897966e-08, 4.4311142726324536e-08, 1.9149193803863224e-07, -7.5486467472508481e-07,
            1.0578889535374652e-06, 1.2565774155716982e-06, -8.8684446792896409e-06, 1.6129888830011536e-05,
            3.0887443650118297e-06, -8.3231562275607954e-05, 0.00019248146613730865, -0.00012664723132220561,
            -0.00046479851168217113, 0.001782856425056441, -0.0035636522777031288, 0.0053661202479225725,
            -0.0074967610968159739, 0.0099672137296782926, 1.4194725867480062, 4.1836964783116732);
    else if (s < 8.0)
        y = rk_horner(s - 6.0, -3.6293668316574881e-18, -1.1027725979238945e-16, 7.2282034580451202e-16,
            2.7380247252077685e-16, -9.4414322137916391e-15, 1.764660489731258e-14, -1.0389879003394764e-14,
            9.5320150752560129e-14, -4.1355970507999158e-13, 7.4359763525502478e-13, -1.0820815188808937e-12,
            2.8595348306185863e-12, -9.904400790778442e-12, 4.4304615694346547e-11, -2.5290154157464331e-10,
            1.5271808291696247e-09, -9.1108197508004123e-09, 5.2871490488969987e-08, -2.9540130446819633e-07,
            1.5635462675440704e-06, -7.5750666773423384e-06, 3.0516688896161704e-05, -6.0705085615568701e-05,
            -0.00066869668129565713, 1.4277972563143289, 8.2871686424971429);
    else if (s < 16.0)
        y = rk_horner(s - 12.0, -3.081307980823745e-22, 3.2729456832084961e-21, -1.4473946952377473e-20,
            1.9789355801349801e-19, -3.083751539277e-18, 3.4310873590536618e-17, -3.7161517819974091e-16,
            4.1200480247881048e-15, -4.4565328857012626e-14, 4.6395793572996849e-13, -4.5830510488876179e-12,
            4.1334821714650954e-11, -3.0567551834889262e-10, 9.9620850918108168e-10, 2.6074670150470646e-08,
            -8.666781261262625e-07, 1.8767832636276531e-05, -0.0003597573408066869, 1.4209621948224371,
            16.830961721880275);
    else
        y = rk_horner(s - 21.75, -4.2319482231237507e-25, 7.1470141127329025e-24, -7.3585877356258359e-23,
            1.3886257076244897e-21, -2.5146405082056066e-20, 3.2482469574803239e-19, -1.8744303689168357e-18,
            -7.9938116559847817e-17, 4.6460199687817145e-15, -1.7166286572307572e-13, 5.4667067632086539e-12,
            -1.6207927318634904e-10, 4.622914907576165e-09, -1.292456183995157e-07, 3.5926431360160478e-06,
            -0.0001008511375373112, 1.4171499025555185, 30.662868183965148);
    if (p > 0.0 && p < 1.0) return y * x;
    return p == 0.0 ? -RK_INF64 : p == 1.0 ? RK_INF64 : RK_NAN64;
}

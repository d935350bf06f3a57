// Encoding of numbers as pulse trains: the bit length and scales of a sample, the probability of a line, the
// slots that fire. Mirror: rpukit/analog/_mirror/update.py; formulas: docs/semantics/update.md.
#pragma once
#include "rk_real.cuh"
#include "rk_philox.cuh"

#define OP_X 5u
#define OP_D 6u
#define SLOTS 31
#define ROUNDING_DRAW 65532u

struct Scales { int length; REAL of_x, of_d; };

// lr is positive here. base_length is the fixed bit length; with `unit` both scales start at 1.
__device__ __forceinline__ Scales scales_of(REAL lr, REAL g, int base_length, int unit, int managed,
                                            int managed_length, REAL grad_scale, REAL x_max, REAL d_max) {
    int length = base_length;
    REAL a = unit ? (REAL)1 : rk_sqrt(lr / (g * (REAL)length)), b = a;
    if (managed) {
        if (x_max == 0.0f || d_max == 0.0f) return {0, 0.0f, 0.0f};
        REAL dd = grad_scale * d_max, needed = lr * x_max * dd / g;
        if (managed_length) {
            length = needed >= (REAL)base_length ? base_length : (int)rk_ceil(needed);
            if (length == 0) return {0, 0.0f, 0.0f};
            a = b = rk_sqrt(lr / (g * (REAL)length));
        }
        if (needed > (REAL)base_length) dd = dd * (REAL)base_length / needed;
        a *= rk_sqrt(x_max / dd);
        b *= rk_sqrt(dd / x_max);
    }
    return {length, b, a};
}

// NaN, from a scale that overflowed on a line of zero, fires nothing.
__device__ __forceinline__ REAL clip01(REAL q) { return q > 0.0f ? (q > 1.0f ? 1.0f : q) : 0.0f; }

__device__ __forceinline__ REAL rounded(REAL p, REAL res, int stochastic, uint2 key, u32 op, u64 line, u64 sample) {
    if (!(res > 0.0f)) return p;
    REAL q = p / res;
    if (stochastic) q += (REAL)rk_uniform(rk_word(key, op, line, sample, ROUNDING_DRAW)) - (REAL)0.5;
    return rk_rint(q) * res;
}

// Those of slots first .. last - 1 of a train that fire, as one word; only the `asked` ones of its 31.
__device__ __forceinline__ u32 slots(REAL p, bool negative, int first, int last, u32 asked, uint2 key, u32 op, u64 line,
                                     u64 sample) {
    u32 word = 0u;
    asked &= last > first ? (1u << (last - first)) - 1u : 0u;
    if (p >= 1.0f) {
        word = asked;
    } else if (p > 0.0f) {
        for (int base = first & ~3; base < last; base += 4) {
            u32 here = (base < first ? asked << (first - base) : asked >> (base - first)) & 15u;
            if (!here) continue;
            uint4 b = rk_block(key, op, line, sample, (u32)base >> 2);
            u32 fired = (p > rk_uniform(b.x)) | (p > rk_uniform(b.y)) << 1 | (p > rk_uniform(b.z)) << 2 | (p > rk_uniform(b.w)) << 3;
            fired &= here;
            word |= base < first ? fired >> (first - base) : fired << (base - first);
        }
    }
    return word && negative ? word | 0x80000000u : word;
}

// An implicit train: with CODING 1 +-q, or for d +-(length q); with 2 a number of pulses, for d with the length.
template <int CODING>
__device__ __forceinline__ u32 implicit_train(REAL p, bool negative, int length, bool carries) {
    if (CODING == 2) {
        REAL expected = (REAL)length * p;
        u32 n = expected > 0.0f ? (expected < (REAL)length ? (u32)rk_rint(expected) : (u32)length) : 0u;
        return n ? n | (carries ? (u32)length << 13 : 0u) | (negative ? 0x80000000u : 0u) : 0u;
    }
    REAL q = length == 0 ? 0.0f : clip01(p);
    if (carries) q = (REAL)length * q;
    return q > 0.0f ? __float_as_uint((float)(negative ? -q : q)) : 0u;
}

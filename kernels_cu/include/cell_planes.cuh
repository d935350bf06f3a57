// The planes of one cell, drawn from the spread from device to device. Mirror:
// rpukit/analog/_mirror/planes.py; formulas: rpukit/analog/cells, docs/devices.md.
//   p    the planes of the cell, as device_steps.cuh takes them; a model with a reference puts the symmetry
//        point behind them
//   q    numbers of the whole tile: 0 w_max, 1 its spread, 2 w_min, 3 its spread, 4 dw_min, 5 its spread,
//        6 min(up_down, 0), 7 -max(up_down, 0), 8 spread of up_down, 9 share of stuck cells, 10 their lowest
//        value, 11 the range of their values, 12 log-normal, 13 consistent, 14 perfect bias, 15 inverted
//        (-1 with slopes, 1 with exponents, 0 not), 16.. the model's; of the slow processes 25 diffusion, 27
//        resting point, 29 lifetime, 31 exponent of drift, each followed by its spread; 33.. the key in 16 bits;
//        for the mirror 37 the model, 38 its number of planes
//   key  of the stream; draws of op 8, index cell, sample 0; last  whether the cell is of the last column
// These numbers, then where POINTS is 1 the symmetry points of all cells, are the recipe of a tile: `points`
// are stored since they take thousands of steps to find.
#pragma once
#include "device_steps.cuh"
#include "rk_philox.cuh"

#define OP_CELLS 8u
#define MOST_PAIRS 10000  // of steps to a symmetry point
#define RECIPE 40         // numbers of a tile
#ifndef PLANES_OF
#define PLANES_OF shared_planes
#endif
#ifndef N_PLANE
#define N_PLANE 4
#endif
#ifndef POINTS
#define POINTS 0
#endif
#define N_DRAWN (N_PLANE > 6 ? N_PLANE + 1 : N_PLANE)  // with the symmetry point

// mean (1 + dtod xi)
__device__ __forceinline__ float rk_spread(float mean, float dtod, u32 word) {
    return dtod == 0.0f || mean == 0.0f ? mean : mean * (1.0f + dtod * rk_normal(word));
}

// mean + std xi
__device__ __forceinline__ float rk_shifted(float mean, float std, u32 word) {
    return std == 0.0f ? mean : mean + std * rk_normal(word);
}

// Slope of a step that vanishes at a weight; 0 where one of them is 0.
__device__ __forceinline__ float rk_slope(float step, float at) {
    return step != 0.0f && at != 0.0f ? __fdiv_rn(-step, at) : 0.0f;
}

// Planes 0 w_min, 1 w_max, 2 step_down, 3 step_up, which all models share.
__device__ __forceinline__ void shared_planes(float *p, const float *q, uint2 key, u64 cell, bool last) {
    uint4 b = rk_block(key, OP_CELLS, cell, 0, 0);
    float high = rk_spread(q[0], q[1], b.x), low = rk_spread(q[2], q[3], b.y), gain = 1.0f, r = 0.0f;
    if (q[5] > 0.0f) {
        float wide = q[5] * rk_normal(b.z);
        gain = q[12] != 0.0f ? rk_exp(wide) : 1.0f + wide;
    }
    if (q[8] > 0.0f) r = q[8] * rk_normal(b.w);
    float up = (q[6] + gain + r) * q[4], down = (q[7] + gain - r) * q[4];
    bool crossed = high < low;
    if (q[13] != 0.0f) {
        float other = crossed ? low : high;
        low = -fabsf(crossed ? high : low);
        high = fabsf(other);
        up = fabsf(up);
        down = fabsf(down);
    } else if (crossed) {
        low = high = (high + low) * 0.5f;
    }
    if (q[9] > 0.0f) {
        uint4 s = rk_block(key, OP_CELLS, cell, 0, 1);
        if (rk_uniform(s.x) < q[9]) {
            low = high = q[10] + q[11] * rk_uniform(s.y);
            up = down = 0.0f;
        }
    }
    if (q[14] != 0.0f && last) {
        up = down = q[4];
        low *= 100.0f;
        high *= 100.0f;
    }
    p[0] = low;
    p[1] = high;
    p[2] = down;
    p[3] = up;
}

// 16 gamma_up, 17 its spread, 18 gamma_down, 19 its spread, 20 signed, 21 mean bounds, 22 reverse up,
// 23 reverse down, 24 offset of reversal. Planes 4 slope_down, 5 slope_up.
__device__ __forceinline__ void linear_planes(float *p, const float *q, uint2 key, u64 cell, bool last) {
    shared_planes(p, q, key, cell, last);
    uint4 b = make_uint4(0u, 0u, 0u, 0u);
    if (q[17] != 0.0f || q[19] != 0.0f) b = rk_block(key, OP_CELLS, cell, 0, 4);
    float up = rk_shifted(q[16], q[17], b.x), down = rk_shifted(q[18], q[19], b.y);
    if (q[20] == 0.0f) { up = fabsf(up); down = fabsf(down); }
    bool mean = q[21] != 0.0f;
    float low = mean ? q[2] : p[0], high = mean ? q[0] : p[1];
    p[4] = rk_slope(down * p[2], q[23] != 0.0f ? high + q[24] : low);
    p[5] = rk_slope(up * p[3], q[22] != 0.0f ? low - q[24] : high);
}

// 16 spread of w_max, 17 of w_min, as divisors, 18 mean and 19 spread of the reference, 20 whether the
// symmetry point is subtracted. Planes 4 slope_down, 5 slope_up, 6 reference, 7 symmetry point.
__device__ __forceinline__ void linear_reference_planes(float *p, const float *q, uint2 key, u64 cell, bool last) {
    shared_planes(p, q, key, cell, last);
    uint4 b = make_uint4(0u, 0u, 0u, 0u);
    if (q[16] != 0.0f || q[17] != 0.0f || q[19] != 0.0f) b = rk_block(key, OP_CELLS, cell, 0, 4);
    if (q[16] > 0.0f) p[1] = __fdiv_rn(p[1], fabsf(rk_spread(1.0f, q[16], b.x)));
    if (q[17] > 0.0f) p[0] = __fdiv_rn(p[0], fabsf(rk_spread(1.0f, q[17], b.y)));
    p[5] = rk_slope(p[3], p[1]);
    p[4] = rk_slope(p[2], p[0]);
    float change = p[4] - p[5], point = 0.0f;
    if (q[20] != 0.0f && p[0] < 0.0f && p[1] > 0.0f && change != 0.0f) point = __fdiv_rn(p[3] - p[2], change);
    p[6] = rk_shifted(q[18], q[19], b.z) + point;
    p[7] = point;
}

// 16 pow_gamma, 17 its spread, 18 min(pow_up_down, 0), 19 -max(pow_up_down, 0), 20 its spread.
// Planes 4 gamma_down, 5 gamma_up.
__device__ __forceinline__ void pow_planes(float *p, const float *q, uint2 key, u64 cell, bool last) {
    shared_planes(p, q, key, cell, last);
    uint4 b = make_uint4(0u, 0u, 0u, 0u);
    if (q[17] != 0.0f || q[20] != 0.0f) b = rk_block(key, OP_CELLS, cell, 0, 4);
    float h = rk_shifted(1.0f, q[17], b.x), r = rk_shifted(0.0f, q[20], b.y);
    p[4] = fabsf((q[19] + h - r) * q[16]);
    p[5] = fabsf((q[18] + h + r) * q[16]);
}

// The symmetry point: n pairs of an up and a down step from 0; for n <= 0 as many as the range needs.
__device__ __forceinline__ float rk_symmetry_point(const float *p, int n) {
    const float g[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    float small = p[2] < p[3] ? p[2] : p[3], w = 0.0f;
    if (n <= 0) {
        float pairs = small > 0.0f ? 10.0f * __fdiv_rn(p[1] - p[0], small) : 0.0f;
        n = pairs < (float)MOST_PAIRS ? (int)floorf(pairs + 0.5f) : MOST_PAIRS;
    }
    for (int k = 0; k < n; ++k) {
        float up = pow_step(w, p, g, true, 0.0f) - w, down = w - pow_step(w, p, g, false, 0.0f);
        float moved = w + (up - down);
        if (moved == w) break;  // it stays there
        w = moved;
    }
    return w;
}

// 21 mean and 22 spread of the reference, 23 whether the symmetry point is subtracted, 24 pairs of steps to
// find it. Planes 6 reference, 7 symmetry point.
__device__ __forceinline__ void pow_reference_planes(float *p, const float *q, uint2 key, u64 cell, bool last) {
    pow_planes(p, q, key, cell, last);
    float point = q[23] != 0.0f ? rk_symmetry_point(p, (int)q[24]) : 0.0f;
    u32 word = q[22] != 0.0f ? rk_word(key, OP_CELLS, cell, 0, 18) : 0u;
    p[6] = rk_shifted(q[21], q[22], word) + point;
    p[7] = point;
}

// The threads of a block read the numbers of a recipe; a barrier has to follow.
__device__ __forceinline__ void rk_read_recipe(float *q, const REAL *recipe) {
    for (int k = threadIdx.x; k < RECIPE; k += blockDim.x) q[k] = (float)recipe[k];
}

__device__ __forceinline__ uint2 rk_recipe_key(const float *q) {
    return make_uint2((u32)q[33] | (u32)q[34] << 16, (u32)q[35] | (u32)q[36] << 16);
}

// All N_DRAWN values of a cell of a recipe, p for the steps of its model.
__device__ __forceinline__ void rk_planes_of_recipe(float *p, const float *q, const REAL *recipe, u64 cell, bool last) {
    PLANES_OF(p, q, rk_recipe_key(q), cell, last);
#if POINTS
    p[N_PLANE] = (float)recipe[RECIPE + cell];
    p[N_PLANE - 1] += p[N_PLANE];
#endif
    if (q[15] == 0.0f) return;
    float low = p[0], down = p[2];
    p[0] = -p[1];
    p[1] = -low;
    p[2] = p[3];
    p[3] = down;
#if N_PLANE > 4
    float bent = p[4];
    p[4] = q[15] * p[5];
    p[5] = q[15] * bent;
#endif
#if N_PLANE > 6
    p[6] = -p[6];
#endif
}

__device__ __forceinline__ float rk_diffusion_rate(const float *q, uint2 key, u64 cell) {
    return fabsf(rk_spread(q[25], q[26], rk_word(key, OP_CELLS, cell, 0, 6)));
}

__device__ __forceinline__ float rk_reset_bias(const float *q, uint2 key, u64 cell, float point) {
    return rk_shifted(q[27], q[28], rk_word(key, OP_CELLS, cell, 0, 7)) + point;
}

__device__ __forceinline__ float rk_decay_scale(const float *q, uint2 key, u64 cell) {
    float life = rk_spread(q[29], q[30], rk_word(key, OP_CELLS, cell, 0, 8));
    return life <= 1.0f ? 0.0f : 1.0f - __fdiv_rn(1.0f, life);
}

__device__ __forceinline__ float rk_drift_nu(const float *q, uint2 key, u64 cell) {
    return rk_spread(q[31], q[32], rk_word(key, OP_CELLS, cell, 0, 9));
}

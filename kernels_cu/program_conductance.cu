// Program weights as conductances: split each weight over the devices of its cell, and write them with noise.
//
//   v = w scale;   target = clip((sign v - start) inverse, 0, span) + base   (with TABLE: a line through nodes)
//   g = clip(target + sigma(x) xi_0, low, high),   x = target unit
//   nu = nu_scale post(mean(x) + std(x) xi_1),     post: LAW 1 |.|, 2 max(., 0), 3 as it is
//
//   weight (n); fit (2): scale (1 / weight units) and shift, of which the first counts here
//   planes (n_plane, 8): 0 sign, 1 start, 2 inverse, 3 base, 4 span, 5 nodes, 6 place of the x, 7 of the y in tables
//   curves: rk_curve.cuh; 0 sigma, 1 mean, 2 std, in microsiemens and of x
//   conductance, nu (n_plane, n)   float32; nu only where LAW is not 0
//   status (1): not zero: do nothing
//
// The devices (planes) of a cell in ascending order. Draws: op 17, index = cell, sample = event, of the
// planes 2 b and 2 b + 1 block b: words 0 and 1 the noise of programming, words 2 and 3 that of nu.
// With STUCK a device hangs, where U falls below the three bounds, at base, at base + span, or anywhere between,
// and its nu is 0; draws: op 20, sample = stuck_event, words 0 and 1 whether, words 2 and 3 where.
// NOISE 0 writes the targets and draws nothing.
//
// A thread takes CELLS cells, 256 apart.
//
// Macros: NOISE, TABLE, LAW, STUCK; SIGMA, MEAN, STD: the kinds of the curves; PLANES: n_plane; CELLS.
// mirror: rpukit/inference/_mirror.py::program_conductance
// op: rpukit.inference.ops.program_conductance
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: NOISE=0 LAW=0
// check: TABLE=1 LAW=3 MEAN=0 STD=0 PLANES=6 CELLS=1
// check: STUCK=1 LAW=2 SIGMA=3 MEAN=3 STD=3 CELLS=1
// source: Nandakumar et al., ICECS 2020; Joshi et al., Nat. Commun. 11:2473 (2020).
#include "rk_philox.cuh"
#include "rk_curve.cuh"

#ifndef NOISE
#define NOISE 1
#endif
#ifndef TABLE
#define TABLE 0
#endif
#ifndef LAW
#define LAW 1
#endif
#ifndef STUCK
#define STUCK 0
#endif
#ifndef PLANES
#define PLANES 2
#endif
#ifndef CELLS
#define CELLS 4
#endif
#ifndef SIGMA
#define SIGMA 0
#endif
#ifndef MEAN
#define MEAN 1
#endif
#ifndef STD
#define STD 1
#endif
#define OP_PROGRAM 17u
#define OP_STUCK 20u

__device__ __forceinline__ float target_of(float v, const float *plane, const float *tables) {
    if (TABLE) return rk_line((int)plane[5], tables + (int)plane[6], tables + (int)plane[7], v);
    return rk_limit((plane[0] * v - plane[1]) * plane[2], 0.0f, plane[4]) + plane[3];
}

__device__ __forceinline__ float drift_of(float v, float nu_scale) {
    float post = LAW == 1 ? fabsf(v) : LAW == 2 ? (v > 0.0f ? v : 0.0f) : v;
    return post * nu_scale;
}

extern "C" __global__ void __launch_bounds__(256)
program_conductance(u64 n, float unit, float low, float high, float nu_scale, u64 event, float at_low, float at_high,
                    float anywhere, u64 stuck_event, const float *__restrict__ weight, const float *__restrict__ fit,
                    const float *__restrict__ planes, const float *__restrict__ tables,
                    const float *__restrict__ curves, float *__restrict__ conductance, float *__restrict__ nu,
                    const int *__restrict__ status, u32 key0, u32 key1) {
    u64 first = (u64)blockIdx.x * (256 * CELLS) + threadIdx.x;
    if (*status) return;
    uint2 key = make_uint2(key0, key1);
    float scale = fit[0], v[CELLS];
#pragma unroll
    for (int c = 0; c < CELLS; ++c) v[c] = first + c * 256 < n ? weight[first + c * 256] * scale : 0.0f;
#pragma unroll
    for (int c = 0; c < CELLS; ++c) {
        u64 i = first + c * 256;
        if (i >= n) continue;
        uint4 draws = make_uint4(0u, 0u, 0u, 0u), hangs = make_uint4(0u, 0u, 0u, 0u);
#pragma unroll 2
        for (int p = 0; p < PLANES; ++p) {
            const float *plane = planes + p * 8;
            bool odd = p & 1;
            if (NOISE && !odd) draws = rk_block(key, OP_PROGRAM, i, event, (u32)p >> 1);
            if (STUCK && !odd) hangs = rk_block(key, OP_STUCK, i, stuck_event, (u32)p >> 1);
            float g = target_of(v[c], plane, tables), x = g * unit, slope = 0.0f;
            if (NOISE) {
                float sigma = rk_curve<SIGMA>(curves, 0, x);
                g = rk_limit(__fmaf_rn(sigma, rk_normal(odd ? draws.y : draws.x), g), low, high);
            }
            if (LAW) {
                float xi = rk_normal(odd ? draws.w : draws.z);
                slope = drift_of(__fmaf_rn(rk_curve<STD>(curves, 2, x), xi, rk_curve<MEAN>(curves, 1, x)), nu_scale);
            }
            if (STUCK) {
                float u = rk_uniform(odd ? hangs.y : hangs.x);
                float where = u < at_low ? 0.0f : u < at_high ? 1.0f : rk_uniform(odd ? hangs.w : hangs.z);
                if (u < anywhere) {
                    g = __fmaf_rn(plane[4], where, plane[3]);
                    slope = 0.0f;
                }
            }
            conductance[p * n + i] = g;
            if (LAW) nu[p * n + i] = slope;
        }
    }
}

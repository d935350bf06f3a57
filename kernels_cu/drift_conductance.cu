// Read programmed conductances at a later time: drift, read noise, and the resulting weight.
//
//   LAW 1: g = g_p exp(-nu log_ratio);   LAW 2: g = clip(g_p + mean + std nu, low, high);   LAW 0: g = g_p
//   READ 1: g = clip(g + (g q(x)) gain xi, low, high), x = g_p unit;   READ 2: g = clip(g + q(x) gain xi, ...), x = g unit
//   w = chain / scale + shift, the chain fma(share, g, .) over the devices of a cell from +0, planes ascending
//   (with TABLE the chain goes through a line of nodes first); OUT 1 gives the conductances instead of w
//
//   conductance, nu (n_plane, n); fit (2): scale and shift; shares (n_plane)
//   table: n_node places, then n_node values (TABLE); curve: rk_curve.cuh, 0 the noise q
//   out (n), or (n_plane, n) with OUT 1; status (1): not zero: do nothing
//
// Draws: op 18, index = number of the cell in its tile / 4, sample = moment, block p for plane p, word cell % 4.
//
// A thread takes four neighbouring cells, which share blocks of draws, plane after plane, in a
// grid-stride loop.
//
// Macros: LAW, READ, TABLE, OUT; NOISE: the kind of the curve, DEGREE of its polynomial, NEAR: rk_curve.cuh;
// PLANES: n_plane; WIDE; BY_COLUMNS, with base, width and pitch: as in program_conductance.cu.
// mirror: rpukit/inference/_mirror.py::drift_conductance
// op: rpukit.inference.conductance.ops.drift_conductance
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: LAW=0 READ=0
// check: LAW=2 READ=2 TABLE=1 NOISE=1
// check: OUT=1 NOISE=0 PLANES=6
// check: NOISE=3
// check: NOISE=2 NEAR=1
// check: BY_COLUMNS=1
// source: Nandakumar et al., ICECS 2020; Wan et al., Nature 608:504 (2022).
#include "rk_cells.cuh"
#include "rk_philox.cuh"
#include "rk_curve.cuh"

#define RK_LARGEST 3.402823466e+38f  // what lasts is finite

#ifndef LAW
#define LAW 1
#endif
#ifndef READ
#define READ 1
#endif
#ifndef TABLE
#define TABLE 0
#endif
#ifndef OUT
#define OUT 0
#endif
#ifndef PLANES
#define PLANES 2
#endif
#ifndef NOISE
#define NOISE 2
#endif
#ifndef DEGREE
#define DEGREE 5
#endif
#ifndef NEAR
#define NEAR 0
#endif
#ifndef BY_COLUMNS
#define BY_COLUMNS 0
#endif
#define OP_READ_NOISE 18u

extern "C" __global__ void __launch_bounds__(256, 4)
drift_conductance(u64 n, u64 base, int width, int pitch, int n_node, float unit, float log_ratio, float mean, float std, float gain, float low, float high,
                  u64 moment, const float *__restrict__ conductance, const float *__restrict__ nu,
                  const float *__restrict__ fit, const float *__restrict__ shares, const float *__restrict__ table,
                  const float *__restrict__ curve, float *__restrict__ out, const int *__restrict__ status, u32 key0,
                  u32 key1) {
    if (*status) return;
    RkCurve<READ ? NOISE : 3, DEGREE, NEAR> noise(curve, 0);
    float scale = fit[0], shift = fit[1], inverse = rk_reciprocal(scale);
    bool plain = rk_ordinary(scale);
    for (u64 first = ((u64)blockIdx.x * 256 + threadIdx.x) * 4; first < n; first += (u64)gridDim.x * 1024) {
        u64 group = (BY_COLUMNS ? rk_cell(base, first, width, pitch) : base + first) >> 2;
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 2
        for (int p = 0; p < PLANES; ++p) {
            float4 w4 = rk_load4(conductance + p * n, first, n), s4 = w4;
            if (LAW) s4 = rk_load4(nu + p * n, first, n);
            float written[4] = {w4.x, w4.y, w4.z, w4.w}, slope[4] = {s4.x, s4.y, s4.z, s4.w}, g[4], xi[4];
            if (READ) rk_normals(rk_block(make_uint2(key0, key1), OP_READ_NOISE, group, moment, p), xi);
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                g[c] = written[c];
                if (LAW == 1) g[c] = fminf(g[c] * rk_exp_within(-(slope[c] * log_ratio)), RK_LARGEST);
                if (LAW == 2) g[c] = rk_limit(g[c] + __fmaf_rn(std, slope[c], mean), low, high);
                if (READ) {
                    float q = noise((READ == 1 ? written[c] : g[c]) * unit);
                    if (READ == 1) q = g[c] * q;
                    g[c] = rk_limit(__fmaf_rn(q * gain, xi[c], g[c]), low, high);
                }
                sum[c] = __fmaf_rn(shares[p], g[c], sum[c]);
            }
            if (OUT) rk_store4(out + p * n, first, n, g);
        }
        if (OUT) continue;
        bool ready = plain;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            if (TABLE) sum[c] = rk_line(n_node, table, table + n_node, sum[c]);
            ready = ready && (sum[c] == 0.0f || rk_ordinary(sum[c]));
        }
#pragma unroll
        for (int c = 0; c < 4; ++c)
            sum[c] = rk_limit((ready ? rk_divide(sum[c], scale, inverse) : __fdiv_rn(sum[c], scale)) + shift, -RK_LARGEST, RK_LARGEST);
        rk_store4(out, first, n, sum);
    }
}

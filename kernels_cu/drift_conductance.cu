// Read programmed conductances at a later time: drift, noise of reading, and the weight that they make.
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
// Draws: op 18, index = cell, sample = moment, block p / 4, word p % 4 for plane p.
//
// A thread takes CELLS cells, 256 apart.
//
// Macros: LAW, READ, TABLE, OUT; NOISE: the kind of the curve; PLANES: n_plane; CELLS.
// mirror: rpukit/inference/_mirror.py::drift_conductance
// op: rpukit.inference.ops.drift_conductance
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: LAW=0 READ=0
// check: LAW=2 READ=2 TABLE=1 NOISE=1
// check: OUT=1 NOISE=0 PLANES=6 CELLS=1
// check: NOISE=3
// source: Nandakumar et al., ICECS 2020; Wan et al., Nature 608:504 (2022).
#include "rk_philox.cuh"
#include "rk_curve.cuh"

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
#ifndef CELLS
#define CELLS 4
#endif
#ifndef NOISE
#define NOISE 2
#endif
#define OP_READ_NOISE 18u

extern "C" __global__ void __launch_bounds__(256)
drift_conductance(u64 n, int n_node, float unit, float log_ratio, float mean, float std, float gain, float low, float high,
                  u64 moment, const float *__restrict__ conductance, const float *__restrict__ nu,
                  const float *__restrict__ fit, const float *__restrict__ shares, const float *__restrict__ table,
                  const float *__restrict__ curve, float *__restrict__ out, const int *__restrict__ status, u32 key0,
                  u32 key1) {
    u64 first = (u64)blockIdx.x * (256 * CELLS) + threadIdx.x;
    if (*status) return;
    float written[CELLS][PLANES], slope[CELLS][PLANES], scale = fit[0], shift = fit[1];
#pragma unroll
    for (int c = 0; c < CELLS; ++c) {
        u64 i = first + c * 256;
#pragma unroll
        for (int p = 0; p < PLANES; ++p) {
            written[c][p] = i < n ? conductance[p * n + i] : 0.0f;
            slope[c][p] = LAW && i < n ? nu[p * n + i] : 0.0f;
        }
    }
#pragma unroll
    for (int c = 0; c < CELLS; ++c) {
        u64 i = first + c * 256;
        if (i >= n) continue;
        uint4 draws = make_uint4(0u, 0u, 0u, 0u);
        float sum = 0.0f;
#pragma unroll
        for (int p = 0; p < PLANES; ++p) {
            float g = written[c][p];
            if (LAW == 1) g = g * rk_exp(-(slope[c][p] * log_ratio));
            if (LAW == 2) g = rk_limit(g + __fmaf_rn(std, slope[c][p], mean), low, high);
            if (READ) {
                int word = p & 3;
                if (word == 0) draws = rk_block(make_uint2(key0, key1), OP_READ_NOISE, i, moment, (u32)p >> 2);
                float xi = rk_normal(word == 0 ? draws.x : word == 1 ? draws.y : word == 2 ? draws.z : draws.w);
                float q = rk_curve<NOISE>(curve, 0, (READ == 1 ? written[c][p] : g) * unit);
                if (READ == 1) q = g * q;
                g = rk_limit(__fmaf_rn(q * gain, xi, g), low, high);
            }
            if (OUT) out[p * n + i] = g;
            else sum = __fmaf_rn(shares[p], g, sum);
        }
        if (TABLE) sum = rk_line(n_node, table, table + n_node, sum);
        if (!OUT) out[i] = __fdiv_rn(sum, scale) + shift;
    }
}

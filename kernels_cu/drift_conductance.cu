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
// One thread a cell. Draws: op 18, index = cell, sample = moment, block p / 4, word p % 4 for plane p.
//
// Macros: LAW, READ, TABLE, OUT; NOISE: the kind of the curve.
// mirror: rpukit/inference/_mirror.py::drift_conductance
// op: rpukit.inference.ops.drift_conductance
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: LAW=0 READ=0
// check: LAW=2 READ=2 TABLE=1 NOISE=1
// check: OUT=1 NOISE=0
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
#ifndef NOISE
#define NOISE 2
#endif
#define OP_READ_NOISE 18u

extern "C" __global__ void __launch_bounds__(256)
drift_conductance(u64 n, int n_plane, int n_node, float unit, float log_ratio, float mean, float std, float gain, float low,
                  float high, u64 moment, const float *conductance, const float *nu, const float *fit,
                  const float *shares, const float *table, const float *curve, float *out, const int *status, u32 key0,
                  u32 key1) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    uint4 draws = make_uint4(0u, 0u, 0u, 0u);
    float sum = 0.0f;
    for (int p = 0; p < n_plane; ++p) {
        float programmed = conductance[p * n + i], g = programmed;
        if (LAW == 1) g = g * rk_exp(-(nu[p * n + i] * log_ratio));
        if (LAW == 2) g = rk_limit(g + __fmaf_rn(std, nu[p * n + i], mean), low, high);
        if (READ) {
            if ((p & 3) == 0) draws = rk_block(make_uint2(key0, key1), OP_READ_NOISE, i, moment, (u32)p >> 2);
            int word = p & 3;
            float xi = rk_normal(word == 0 ? draws.x : word == 1 ? draws.y : word == 2 ? draws.z : draws.w);
            float q = rk_curve<NOISE>(curve, 0, (READ == 1 ? programmed : g) * unit);
            if (READ == 1) q = g * q;
            g = rk_limit(__fmaf_rn(q * gain, xi, g), low, high);
        }
        if (OUT) out[p * n + i] = g;
        else sum = __fmaf_rn(shares[p], g, sum);
    }
    if (TABLE) sum = rk_line(n_node, table, table + n_node, sum);
    if (!OUT) out[i] = __fdiv_rn(sum, fit[0]) + fit[1];
}

// Change weights for one forward and backward pass, so that training meets the noise of the hardware.
//
//   a = largest[0]; s = std; round(v) = step * (|v| / step to the nearest integer, half up) with the sign of v
//   KIND 0  w                              1  w + (a s) xi                 2  w ((a s) xi + 1)
//        3  a round(w / a [+ (U - 1/2) step])   4  a (round(..) + s xi)
//        5  w + ((a s) poly(|w| / a)) xi   6  the same with the sign of w  7  round(tanh(w) (clip / tanh(a)) [+ ..])
//        8  w clipped to [-a, a]
//   then, with DROP, 0 where U < drop
//
//   weight, out (n)   may be the same; poly (6): c0 to c5; status (1): not zero: do nothing
//
// One thread a cell. a = 0 (all weights are 0) leaves w as it is. Draws: op 19, index = cell, sample = event, block 0:
// word 0 xi, word 1 the rounding (SPREAD: stochastic), word 2 the drop.
//
// Macros: KIND, SPREAD, DROP.
// mirror: rpukit/inference/_mirror.py::modify_weights
// op: rpukit.inference.digital.modify_weights
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: KIND=4 SPREAD=1 DROP=1
// check: KIND=6
// check: KIND=7
// check: KIND=8
// source: Joshi et al., Nat. Commun. 11:2473 (2020); Zhou et al., arXiv 1606.06160; Rasch et al., AICAS 2021.
#include "rk_philox.cuh"
#include "rk_curve.cuh"

#ifndef KIND
#define KIND 1
#endif
#ifndef SPREAD
#define SPREAD 0
#endif
#ifndef DROP
#define DROP 0
#endif
#define OP_MODIFY 19u

__device__ __forceinline__ float to_step(float v, float step, u32 word) {
    if (SPREAD) v = __fmaf_rn(rk_uniform(word) - 0.5f, step, v);
    float q = __fdiv_rn(fabsf(v), step), whole = floorf(q);
    float r = (whole + (q - whole >= 0.5f ? 1.0f : 0.0f)) * step;
    return v < 0.0f ? -r : r;
}

extern "C" __global__ void __launch_bounds__(256)
modify_weights(u64 n, float std, float step, float bound, float drop, u64 event, const float *weight, const float *largest,
               const float *poly, float *out, const int *status, u32 key0, u32 key1) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    uint4 draws = make_uint4(0u, 0u, 0u, 0u);
    if ((KIND && KIND != 8) || DROP) draws = rk_block(make_uint2(key0, key1), OP_MODIFY, i, event, 0u);
    float w = weight[i], a = *largest, y = w, xi = rk_normal(draws.x);
    if (a > 0.0f) {
        if (KIND == 1) y = __fmaf_rn(a * std, xi, w);
        if (KIND == 2) y = w * __fmaf_rn(a * std, xi, 1.0f);
        if (KIND == 3) y = a * to_step(__fdiv_rn(w, a), step, draws.y);
        if (KIND == 4) y = a * __fmaf_rn(std, xi, to_step(__fdiv_rn(w, a), step, draws.y));
        if (KIND == 5 || KIND == 6) {
            float x = __fdiv_rn(fabsf(w), a);
            y = __fmaf_rn(a * std * rk_horner(x, poly[5], poly[4], poly[3], poly[2], poly[1], poly[0]), xi, w);
        }
        if (KIND == 6) y = w < 0.0f ? -fabsf(y) : fabsf(y);
        if (KIND == 7) y = to_step(rk_tanh(w) * __fdiv_rn(bound, rk_tanh(a)), step, draws.y);
        if (KIND == 8) y = rk_limit(w, -a, a);
    }
    out[i] = DROP && rk_uniform(draws.z) < drop ? 0.0f : y;
}

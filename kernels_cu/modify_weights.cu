// Perturb weights for one forward and backward pass of hardware-aware training.
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
// A thread takes four neighbouring cells. a = 0 (all weights are 0) leaves w as it is. Draws: op 19, index = cell, sample = event, block 0:
// word 0 xi, word 1 the rounding (SPREAD: stochastic), word 2 the drop.
//
// Macros: KIND, SPREAD, DROP, WIDE.
// mirror: rpukit/inference/_mirror.py::modify_weights
// op: rpukit.inference.training.ops.modify_weights
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: KIND=4 SPREAD=1 DROP=1
// check: KIND=6
// check: KIND=7
// check: KIND=8
// check: KIND=2 WIDE=0
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

__device__ __forceinline__ float modified(float w, float a, float std, float step, float bound, const float *poly,
                                          float xi, u32 word) {
    if (KIND == 1) return __fmaf_rn(a * std, xi, w);
    if (KIND == 2) return w * __fmaf_rn(a * std, xi, 1.0f);
    if (KIND == 3) return a * to_step(__fdiv_rn(w, a), step, word);
    if (KIND == 4) return a * __fmaf_rn(std, xi, to_step(__fdiv_rn(w, a), step, word));
    if (KIND == 5 || KIND == 6) {
        float x = __fdiv_rn(fabsf(w), a);
        float y = __fmaf_rn(a * std * rk_horner(x, poly[5], poly[4], poly[3], poly[2], poly[1], poly[0]), xi, w);
        return KIND == 5 ? y : w < 0.0f ? -fabsf(y) : fabsf(y);
    }
    if (KIND == 7) return to_step(rk_tanh(w) * __fdiv_rn(bound, rk_tanh(a)), step, word);
    return KIND == 8 ? rk_limit(w, -a, a) : w;
}

extern "C" __global__ void __launch_bounds__(256)
modify_weights(u64 n, float std, float step, float bound, float drop, u64 event, const float *weight, const float *largest,
               const float *poly, float *out, const int *status, u32 key0, u32 key1) {
    u64 first = ((u64)blockIdx.x * 256 + threadIdx.x) * 4;
    if (*status || first >= n) return;
    float4 cells = rk_load4(weight, first, n);
    float w[4] = {cells.x, cells.y, cells.z, cells.w}, a = *largest, x[4], xi[4];
    uint4 draws[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
        draws[c] = make_uint4(0u, 0u, 0u, 0u);
        if ((KIND && KIND != 8) || DROP) draws[c] = rk_block(make_uint2(key0, key1), OP_MODIFY, first + c, event, 0u);
        x[c] = rk_centred(draws[c].x);
    }
    rk_normals_centred(x, xi);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
        if (a > 0.0f) w[c] = modified(w[c], a, std, step, bound, poly, xi[c], draws[c].y);
        if (DROP && rk_uniform(draws[c].z) < drop) w[c] = 0.0f;
    }
    rk_store4(out, first, n, w);
}

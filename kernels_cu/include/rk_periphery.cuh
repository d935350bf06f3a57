// Converters of a tile, shared by the kernels of its products. Mirror: rpukit/analog/_mirror/forward.py.
//   io: the periphery as 16 floats, see tile_forward.cu
#pragma once
#include "rk_philox.cuh"

__device__ __forceinline__ float clip(float v, float bound) {  // a bound of 0 or below is none
    return bound > 0.0f ? (v > bound ? bound : v < -bound ? -bound : v) : v;
}

__device__ __forceinline__ float convert(float v, float step, bool stochastic, u32 word) {
    if (!(step > 0.0f)) return v;
    float q = v / step;
    if (stochastic) q += rk_uniform(word) - 0.5f;
    return rintf(q) * step;
}

// The scale of a sample as a factor on its inputs; never infinite, so that 0 stays 0.
__device__ __forceinline__ float inverse(float alpha, float rho) {
    float sc = alpha > 0.0f ? 1.0f / alpha : 1.0f;
    return (sc > 3.402823466e+38f ? 3.402823466e+38f : sc) / rho;
}

__device__ __forceinline__ float input_line(float x, float sc, const float *io, u32 op, u64 line, u64 sample, u32 round, uint2 key) {
    bool rounds = io[10] != 0.0f && io[1] > 0.0f, noisy = io[2] > 0.0f;
    uint4 b = rounds || noisy ? rk_block(key, op, line, sample, round) : make_uint4(0u, 0u, 0u, 0u);
    float v = clip(convert(x * sc, io[1], rounds, b.x), io[0]);
    if (noisy) v = __fmaf_rn(io[2], rk_normal(b.y), v);
    return v < 0.0f ? v * io[3] : v;
}

// Converters of a tile, shared by the kernels of its products. Mirror: rpukit/analog/_mirror/forward.py.
//   io: the periphery as 16 numbers, see tile_forward.cu
#pragma once
#include "rk_real.cuh"
#include "rk_philox.cuh"

template <class T>
__device__ __forceinline__ T clip(T v, T bound) {  // a bound of 0 or below is none
    return bound > 0.0f ? (v > bound ? bound : v < -bound ? -bound : v) : v;
}

template <class T>
__device__ __forceinline__ T convert(T v, T step, bool stochastic, u32 word) {
    if (!(step > 0.0f)) return v;
    T q = v / step;
    if (stochastic) q += (T)rk_uniform(word) - (T)0.5;
    return rk_rint(q) * step;
}

// The scale of a sample as a factor on its inputs; never infinite, so that 0 stays 0.
template <class T>
__device__ __forceinline__ T inverse(T alpha, T rho) {
    T sc = alpha > (T)0 ? (T)1 / alpha : (T)1, largest = rk_largest(sc);
    return (sc > largest ? largest : sc) / rho;
}

template <class T>
__device__ __forceinline__ T input_line(T x, T sc, const T *io, u32 op, u64 line, u64 sample, u32 round, uint2 key) {
    bool rounds = io[10] != 0.0f && io[1] > 0.0f, noisy = io[2] > 0.0f;
    uint4 b = rounds || noisy ? rk_block(key, op, line, sample, round) : make_uint4(0u, 0u, 0u, 0u);
    T v = clip(convert(x * sc, io[1], rounds, b.x), io[0]);
    if (noisy) v = rk_fma(io[2], (T)rk_normal(b.y), v);
    return v < 0.0f ? v * io[3] : v;
}

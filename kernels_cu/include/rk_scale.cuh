// Noise management: what is found in the inputs of a sample, and the scale it makes of that.
#pragma once
#include "rk_math.cuh"

// The largest |x| as bits, which order as the numbers do: more than LARGEST_FINITE is infinity or NaN. And max x,
// with its sign turned into an order of bits as well.
#define LARGEST_FINITE 0x7f7fffffu
struct Extent {
    u32 largest, top;
};

__device__ __forceinline__ void widen(Extent &e, float v, bool top) {
    u32 bits = __float_as_uint(v);
    e.largest = max(e.largest, bits & 0x7fffffffu);
    if (top) e.top = max(e.top, bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}
__device__ __forceinline__ float top_of(const Extent &e) { return __uint_as_float(e.top & 0x80000000u ? e.top & 0x7fffffffu : ~e.top); }

// Widen by V elements, 1 or 4 that are aligned.
template <int V> __device__ __forceinline__ void widen_at(Extent &e, const float *x, bool top) {
    if (V == 4) {
        float4 q = *(const float4 *)x;
        widen(e, q.x, top), widen(e, q.y, top), widen(e, q.z, top), widen(e, q.w, top);
    } else {
        widen(e, *x, top);
    }
}

// Over the lanes of a warp; maxima have no order.
__device__ __forceinline__ void widen_warp(Extent &e, bool top) {
    e.largest = __reduce_max_sync(0xffffffffu, e.largest);
    if (top) e.top = __reduce_max_sync(0xffffffffu, e.top);
}

__device__ __forceinline__ float at_most(float v, float threshold) { return threshold > 0.0f ? fminf(v, threshold) : v; }

// Modes 0 to 3 of tile_scale.cu.
__device__ __forceinline__ float plain_scale(int mode, const Extent &e, float threshold) {
    if (mode == 1) return at_most(__uint_as_float(e.largest), threshold);
    if (mode == 2) return at_most(top_of(e), threshold);
    if (mode == 3) return threshold > 0.0f ? threshold : 1.0f;
    return 1.0f;
}

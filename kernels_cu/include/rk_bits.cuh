// Matrices of bits across the lanes of a warp.
#pragma once
#include "rk_types.cuh"

// Lane r gives row r of a 32 x 32 matrix of bits, and gets row r of its transpose.
__device__ __forceinline__ u32 rk_transpose_bits(u32 v) {
    u32 m = 0x0000ffffu;
#pragma unroll
    for (int j = 16; j; j >>= 1, m ^= m << j) {
        u32 other = __shfl_xor_sync(0xffffffffu, v, j);
        v = threadIdx.x & j ? (v & ~m) | ((other >> j) & m) : (v & m) | ((other & m) << j);
    }
    return v;
}

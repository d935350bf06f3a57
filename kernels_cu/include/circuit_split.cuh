// Floats as pairs of bfloat16: a high part, and what it leaves, rounded again. Both planes have one layout; the low one
// begins APART words after the high one.
#pragma once
#include "rk_mma.cuh"

#ifndef SPLIT
#define SPLIT 0
#endif

// The low parts of two floats, whose high ones are packed.
__device__ __forceinline__ u32 rk_pack_rest(u32 packed, float low, float high) {
    return rk_pack16(low - __uint_as_float(packed << 16), high - __uint_as_float(packed & 0xffff0000u));
}

// The float whose bits, not parts, stand in both planes.
__device__ __forceinline__ float rk_joined(u16 high, u16 low) { return __uint_as_float((u32)high << 16 | low); }

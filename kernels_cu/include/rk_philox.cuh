// Random draws at logical coordinates. Mirror: rpukit/random.py.
// Philox4x32-10 (Salmon et al., SC 2011). Key: two words of the stream. Counter:
//   index_lo | sample_lo | sample_hi + (op << 16) | block + (index_hi << 16)
// index is a cell or a line (48 bits), sample the absolute sample or event (48 bits).
// Draw number d of (op, index, sample) is word d % 4 of block d / 4.
#pragma once
#include "rk_types.cuh"
#include "rk_math.cuh"

__device__ __forceinline__ uint4 rk_philox(uint4 c, uint2 k) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u32 hi0 = __umulhi(0xD2511F53u, c.x), lo0 = 0xD2511F53u * c.x;
        u32 hi1 = __umulhi(0xCD9E8D57u, c.z), lo1 = 0xCD9E8D57u * c.z;
        c = make_uint4(hi1 ^ c.y ^ k.x, lo1, hi0 ^ c.w ^ k.y, lo0);
        k.x += 0x9E3779B9u;
        k.y += 0xBB67AE85u;
    }
    return c;
}

// The four words of one block of draws.
__device__ __forceinline__ uint4 rk_block(uint2 key, u32 op, u64 index, u64 sample, u32 block) {
    return rk_philox(make_uint4((u32)index, (u32)sample, (u32)(sample >> 32) + (op << 16),
                                block + ((u32)(index >> 32) << 16)), key);
}

// One draw; asks for a whole block, so take rk_block where several draws are used.
__device__ __forceinline__ u32 rk_word(uint2 key, u32 op, u64 index, u64 sample, u32 draw) {
    uint4 b = rk_block(key, op, index, sample, draw >> 2);
    u32 w = draw & 3u;
    return w == 0 ? b.x : w == 1 ? b.y : w == 2 ? b.z : b.w;
}

// The top 23 bits and a half: in (0, 1), symmetric, exact in float32, never 0 or 1.
__device__ __forceinline__ float rk_uniform(u32 word) {
    return ((float)(word >> 9) + 0.5f) * 1.1920928955078125e-07f;
}

// 2 rk_uniform(word) - 1, exactly.
__device__ __forceinline__ float rk_centred(u32 word) {
    return __fmaf_rn((float)(word & 0xfffffe00u), 4.656612873077393e-10f, -0.99999988079071045f);
}

// Standard normal of rk_uniform(word) by the inverse of its distribution; range +-5.2953.
__device__ __forceinline__ float rk_normal(u32 word) { return rk_normal_centred(rk_centred(word)); }

// The draws of a block.
__device__ __forceinline__ void rk_normals(uint4 words, float (&xi)[4]) {
    float x[4] = {rk_centred(words.x), rk_centred(words.y), rk_centred(words.z), rk_centred(words.w)};
    rk_normals_centred(x, xi);
}
__device__ __forceinline__ void rk_uniforms(uint4 words, float (&u)[4]) {
    u[0] = rk_uniform(words.x), u[1] = rk_uniform(words.y), u[2] = rk_uniform(words.z), u[3] = rk_uniform(words.w);
}

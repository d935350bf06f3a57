// Where the accumulators of det_gemm_tensor.cu come from and go to; its macros BN, OUT_T hold here.
#pragma once
#include "rk_tma.cuh"

// Two neighbouring results at (i, j) and (i, j + 1); the second may lie in the padding of a line.
__device__ __forceinline__ float2 read_pair(const float *m, int i, int j, int n_i, int n_j, int ld) {
    if (i >= n_i || j >= n_j) return make_float2(0.0f, 0.0f);
    if (!OUT_T) return *(const float2 *)(m + (u64)i * ld + j);
    return make_float2(m[(u64)j * ld + i], j + 1 < n_j ? m[(u64)(j + 1) * ld + i] : 0.0f);
}
__device__ __forceinline__ void write_pair(float *m, int i, int j, int n_i, int n_j, int ld, float x, float y) {
    if (i >= n_i || j >= n_j) return;
    if (!OUT_T) {
        *(float2 *)(m + (u64)i * ld + j) = make_float2(x, y);
    } else {
        m[(u64)j * ld + i] = x;
        if (j + 1 < n_j) m[(u64)(j + 1) * ld + i] = y;
    }
}

// Results as 16-bit floats: through shared memory, then whole boxes (or lines of 16 bytes, turned).
__device__ __forceinline__ void write16(const float (&d)[BN / 2], u16 *out, const RkTensorMap &o, u32 staging, u32 &sent, int i, int j,
                                        int n_i, int n_j, int ld) {
    int t = threadIdx.x % 128, lane = t % 32, warp = t / 32, id = threadIdx.x / 128;
#if OUT_T
    rk_sync_group(id);
#pragma unroll
    for (int b = 0; b < BN / 16; ++b) {
        int row = b * 16 + lane / 16 * 8 + lane % 8;
        rk_store_matrices<true>(rk_swizzle(staging + row * 128 + (warp * 2 + lane / 8 % 2) * 16), rk_pack16(d[8 * b], d[8 * b + 1]),
                                rk_pack16(d[8 * b + 2], d[8 * b + 3]), rk_pack16(d[8 * b + 4], d[8 * b + 5]), rk_pack16(d[8 * b + 6], d[8 * b + 7]));
    }
    rk_sync_group(id);
    for (int e = t; e < BN * 8; e += 128) {
        int row = e / 8, at = i + e % 8 * 8;
        if (at < n_i && j + row < n_j) *(uint4 *)(out + (u64)(j + row) * ld + at) = rk_read_line(rk_swizzle(staging + row * 128 + e % 8 * 16));
    }
#else
#pragma unroll
    for (int box = 0; box < BN / 64; ++box, ++sent) {
        u32 buffer = staging + sent % 2 * 8192;
        if (t == 0) rk_stores_left<1>();
        rk_sync_group(id);
        int row = warp * 16 + lane % 16;
#pragma unroll
        for (int b = 0; b < 4; ++b) {
            int x = 32 * box + 8 * b;
            rk_store_matrices<false>(rk_swizzle(buffer + row * 128 + (2 * b + lane / 16) * 16), rk_pack16(d[x], d[x + 1]),
                                     rk_pack16(d[x + 2], d[x + 3]), rk_pack16(d[x + 4], d[x + 5]), rk_pack16(d[x + 6], d[x + 7]));
        }
        rk_see_stores();
        rk_sync_group(id);
        if (t == 0) rk_store_box(o, buffer, j + 64 * box, i);
    }
#endif
}

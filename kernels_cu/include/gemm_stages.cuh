// The work of a block of det_gemm_tensor.cu, and what fills its ring of stages. Uses its macros.
#pragma once
#include "rk_tma.cuh"

// The tiles of a block, or with PARTS 2 the segments of tiles, one after another.
struct Tiles {
    int n_p, n_q, at, group, number = 0, part = 0;
    __device__ __forceinline__ Tiles(int n_i, int n_j, int group)
        : n_p((n_i + BM - 1) / BM), n_q((n_j + BN - 1) / BN), at(blockIdx.x), group(group) {}
    __device__ __forceinline__ bool next(int &i, int &j, int parts) {
        if (at >= n_p * n_q * parts) return false;
        number = at % (n_p * n_q), part = at / (n_p * n_q);
        int whole = group * n_q, first = number / whole * group, lines = min(group, n_p - first), rest = number % whole;
        i = (first + rest % lines) * BM;
        j = rest / lines * BN;
        at += gridDim.x;
        return true;
    }
};

__device__ __forceinline__ void fetch(u32 to_p, u32 to_q, const RkTensorMap &p, const RkTensorMap &q, int i, int j, int r, u32 full,
                                      int q_bytes) {
    rk_arrive_expect(full, P_BYTES + q_bytes);
    if (P_MN)
#pragma unroll
        for (int b = 0; b < NC; ++b) rk_load_box(to_p + b * 8192, p, i + 64 * b, r, full);
    else rk_load_box(to_p, p, r, i, full);
    if (Q_MN)
#pragma unroll
        for (int b = 0; b < BN / 64; ++b) rk_load_box(to_q + b * 8192, q, j + 64 * b, r, full);
    else rk_load_box(to_q, q, r, j, full);
}

// Box `b` of a stage for sums.
__device__ __forceinline__ u32 sums_at(u32 p, u32 q, int b) { return b < NC ? p + b * 8192 : q + (b - NC) * 8192; }

// Part `part` of a tile's sums: boxes of 32 columns, for one warpgroup after the other.
__device__ __forceinline__ void fetch_sums(u32 to_p, u32 to_q, const RkTensorMap &sums, int part, int i, int j, u32 full) {
    rk_arrive_expect(full, NC * 8192 * min(EACH, BN / 32 - part * EACH));
#pragma unroll
    for (int b = 0; b < NC * EACH; ++b) {
        int column = part * EACH + b / NC;
        if (column < BN / 32) rk_load_box(sums_at(to_p, to_q, b), sums, 2 * (j + 32 * column), i + 64 * (b % NC), full);
    }
}

// Bound management of tile_forward: which samples and rounds the rows of a block's tile are, and which round a
// sample ends with where all were made at once. Work: rk_lines.cuh.
#pragma once
#include "rk_lines.cuh"

// Rows of a block's tile.
struct Rows {
    int sample[TILE_M];  // -1: none
    int round[TILE_M];
    float alpha[TILE_M];
    float factor[TILE_M];  // of the inputs
    u32 met[TILE_M];  // whether an output met its bound
};

// Samples that did not pass round 0, as bits: what its blocks have left in `failed`.
__device__ __forceinline__ u32 failed_samples(const u32 *failed, int n_word, u32 *shared) {
    u32 mask = 0;
    for (int e = threadIdx.x; e < n_word; e += THREADS) mask |= failed[e];
    if (threadIdx.x == 0) *shared = 0;
    __syncthreads();
    if (mask) atomicOr(shared, mask);
    __syncthreads();
    return *shared;
}

// Bit number j of those that are set.
__device__ __forceinline__ int set_bit(u32 mask, int j) {
    for (; j > 0; --j) mask &= mask - 1;
    return __ffs((int)mask) - 1;
}

// Leave word of the samples of a round that did not pass: as bits for the kernel that makes all further rounds,
// whose counters are set to 0, or each for itself.
__device__ __forceinline__ void note_failures(const Work &w, bool together, const Rows &rows) {
    int t = threadIdx.x;
    bool met = t < TILE_M && rows.met[t < TILE_M ? t : 0];
    if (together && t < 32) {
        u32 bits = __ballot_sync(0xffffffffu, met);
        if (t == 0) w.failed[blockIdx.y * gridDim.x + blockIdx.x] = bits << (blockIdx.y * TILE_M % 32);
        if (blockIdx.x == 0 && blockIdx.y == 0) w.met[t] = w.count[t] = 0;
    }
    if (!together && met) atomicMax(&w.need[rows.sample[t]], rows.round[t] + 1);
}

// Give the samples whose last block this is the results of the first round that passed, or of the last one.
// The further rounds of a sample are neighbouring rows; n_row in all, row0 the first of this block's tile.
__device__ __forceinline__ void select_rounds(const Work &w, u32 failing, int n_further, int n_row, int row0, int n_tile, int n_out,
                                              Rows &rows, float *y) {
    int t = threadIdx.x, first = row0 / n_further, last = (min(row0 + TILE_M, n_row) - 1) / n_further;
    if (t < TILE_M && rows.met[t]) atomicOr(&w.met[rows.sample[t]], 1u << rows.round[t]);
    __threadfence();
    __syncthreads();
    if (t <= last - first) {
        int j = first + t, s = set_bit(failing, j);
        int n_block = ((j + 1) * n_further - 1) / TILE_M - j * n_further / TILE_M + 1;
        bool done = atomicAdd(&w.count[s], 1u) + 1 == (u32)(n_block * n_tile);
        rows.sample[t] = done ? s : -1;
        if (done) {
            __threadfence();
            u32 met = __ldcg(&w.met[s]);
            int r = 1;
            while (r < n_further && met >> r & 1u) ++r;
            rows.round[t] = r;
        }
    }
    __syncthreads();
    __threadfence();
    const int across = n_out / VEC;
#pragma unroll 4
    for (int e = t; e < (last - first + 1) * across; e += THREADS) {
        int k = e / across, i = e % across * VEC, s = rows.sample[k];
        if (s < 0) continue;
        const float *from = w.body + ((u64)(first + k) * n_further + rows.round[k] - 1) * n_out + i;
        float *to = y + (u64)s * n_out + i;
        if (VEC == 4) *(float4 *)to = __ldcg((const float4 *)from);
        else *to = __ldcg(from);
    }
}

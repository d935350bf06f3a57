// Which round a sample should end with, by the largest of its outputs that met a bound in round 0.
#pragma once
#include "rk_lines.cuh"

#define FAR_BEYOND 1.05f
#ifndef PEAK_N
#define PEAK_N 32
#endif

// What an output of round 0 is divided by in another one.
__device__ __forceinline__ float shrinking(const Work &w, int n_batch, int s, int round, const float *io) {
    return scale_of(w.alpha, n_batch, s, round, io) * reduction(round, io) / scale_of(w.alpha, n_batch, s, 0, io);
}

// By a warp: the round (0: it passed), and which PEAK_N outputs the rounds before are to be tried with.
__device__ __forceinline__ int2 forecast(const Work &w, int n_batch, int n_peak, int n_round, int s, const float *io) {
    const u32 all = 0xffffffffu, *peaks = w.peaks + (u64)s * n_peak;
    const int lane = threadIdx.x % 32;
    u32 peak = 0;
    for (int i = lane; i < n_peak; i += 32) peak = max(peak, peaks[i]);
    peak = __reduce_max_sync(all, peak);
    if (peak == 0) return make_int2(0, 0);
    int round;
    float size = __uint_as_float(peak), bound = io[4];
    for (round = 1; round + 1 < n_round && size > bound * shrinking(w, n_batch, s, round, io);) ++round;
    float enough = fminf(size, FAR_BEYOND * bound * shrinking(w, n_batch, s, round - 1, io));
    u32 found = 0;  // the first of them, so that many samples share a tile
    for (int i = lane; i < n_peak; i += 32)
        if (!found && __uint_as_float(peaks[i]) >= enough) found = n_peak - i;
    return make_int2(round, n_peak - (int)__reduce_max_sync(all, found));
}

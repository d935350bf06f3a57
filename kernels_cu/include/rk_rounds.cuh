// Bound management of tile_forward: which samples and rounds the rows of a block's tile are, and which round a
// sample ends with.
//
// A further round halves the inputs, so the largest output of round 0 forecasts the round that passes. That one is
// made in full; for each round before it one tile of outputs is tried where round 0 was far beyond the bound: an
// output that meets it there proves that the round had to fail. Only where a forecast does not come true are the
// rounds of a sample made one after the other, or all at once.
//
// Work (rk_lines.cuh): peaks, the largest |output| of a sample past its bound among each 32 of round 0, as bits;
// need, its forecast, or BY_ROUND + the round it waits for; met, the rounds that met a bound so far, as bits; late and
// count, the same where all rounds are made at once, and how many blocks of those are done. Of more than 8 samples
// those that failed are listed, in any order, and need is 0 of the others; of more than 32, tried says with which of the
// peaks the rounds before are tried, and their inputs have been made.
#pragma once
#include "rk_forecast.cuh"

#define PEAKS (ALL == 0 ? TILE_N / PEAK_N : 1)  // of a row
#ifndef LOT
#define LOT 256
#endif
#define NOTED (n_batch > 8)  // fewer samples may be without the kernel that sets need and n_failed to 0
#define LISTED (n_batch > 32)  // tile_scale made the forecasts of those that failed, and their inputs

// Rows of a block's tile.
struct Rows {
    int sample[TILE_M];  // -1: none
    int round[TILE_M];
    float alpha[TILE_M];
    float factor[TILE_M];  // of the inputs
    u32 met[TILE_M * PEAKS];  // the largest |output| past its bound, as bits; 0: none
};

// What is known of the samples of a block.
struct Forecast {
    int sample[TILE_M];  // -1: none
    int round[TILE_M];  // 0: passed
    int tile[TILE_M];  // in which the rounds before are tried
};
// Samples of a block that go through all rounds.
struct Open {
    int sample[TILE_M];
    u32 counts[THREADS / 32];
};
union Choice {
    Forecast forecast;
    Open open;
};

// Returns whether a block has samples that have not passed; the same for all threads. `spared`: where no more failed,
// another launch takes them.
__device__ __forceinline__ bool make_forecast(Forecast &f, const Work &w, int n_batch, int n_peak, int n_round, int row0, int spared,
                                              const float *io) {
    const int t = threadIdx.x, own = row0 + t, n_failed = NOTED ? (int)*w.n_failed : n_batch;
    if (n_failed == 0) return false;
    if (LISTED) {
        if (row0 >= n_failed || n_failed <= spared || n_failed > (int)gridDim.y * TILE_M) return false;
        if (t < TILE_M) {
            int s = own < n_failed ? (int)w.failed[own] : -1;
            f.sample[t] = s;
            f.round[t] = s < 0 ? 0 : w.need[s];
            f.tile[t] = s < 0 ? 0 : (int)w.tried[own] * PEAK_N / TILE_N;
        }
    } else {
        for (int m = t / 32; m < TILE_M; m += THREADS / 32) {
            int s = row0 + m;
            int2 found = s < n_batch ? forecast(w, n_batch, n_peak, n_round, s, io) : make_int2(0, 0);
            if (t % 32 == 0) f.sample[m] = s < n_batch ? s : -1, f.round[m] = found.x, f.tile[m] = found.y * PEAK_N / TILE_N;
        }
    }
    __syncthreads();
    return true;
}

// Row t of lot number k of the tries, as sample of the block and round: samples one after the other, as long as
// they are tried in the same `tile` and there is room.
__device__ __forceinline__ int2 try_of(const Forecast &f, int k, int t, int &tile) {
    int lot = -1, filled = TILE_M, at = -1;
    int2 mine = make_int2(-1, 0);
    for (int m = 0; m < TILE_M && lot <= k; ++m)
        for (int r = 1; r < f.round[m]; r += TILE_M) {
            int n = min(f.round[m] - r, TILE_M);
            if (filled + n > TILE_M || f.tile[m] != at) {
                ++lot;
                filled = 0;
                at = f.tile[m];
            }
            if (lot == k) {
                tile = at;
                if (t >= filled && t < filled + n) mine = make_int2(m, r + t - filled);
            }
            filled += n;
        }
    return mine;
}

// Whether a forecast did not come true: not all rounds before it met a bound, or it did and was not the last.
__device__ __forceinline__ bool unsettled(const Work &w, int s, int n_round) {
    int r = w.need[s];
    if (r <= 0 || r >= BY_ROUND) return false;
    u32 met = w.met[s], before = (1u << r) - 2u;
    return (met & before) != before || (r + 1 < n_round && (met >> r & 1u));
}

// How many such samples there are; those from number `first` on, in the order in which samples are listed, go to o.
__device__ __forceinline__ int unsettled_samples(Open &o, const Work &w, int n_batch, int n_round, int first) {
    const int t = threadIdx.x, n_listed = NOTED ? (int)*w.n_failed : n_batch;
    int n = 0;
    for (int k = t; k - t < n_listed; k += THREADS) {  // the same number of times for all threads
        int s = k >= n_listed ? -1 : NOTED ? (int)w.failed[k] : k;
        bool open = s >= 0 && unsettled(w, s, n_round);
        u32 bits = __ballot_sync(0xffffffffu, open);
        if (t % 32 == 0) o.counts[t / 32] = __popc(bits);
        __syncthreads();
        int at = n - first + __popc(bits & ((1u << t % 32) - 1u));
        for (int warp = 0; warp < THREADS / 32; ++warp) {
            if (warp < t / 32) at += (int)o.counts[warp];
            n += (int)o.counts[warp];
        }
        if (open && at >= 0 && at < TILE_M) o.sample[at] = s;
        __syncthreads();
    }
    return n;
}

// Whether a sample takes part in a round of those that go round by round.
__device__ __forceinline__ bool takes_part(const Work &w, int s, int round, int n_round, bool foretold) {
    if (w.need[s] >= BY_ROUND + round) return true;
    return foretold && round == 1 && w.need[s] < BY_ROUND && unsettled(w, s, n_round);
}

// Sample (-1: none) and round of the row of a thread, of rows row0 on; all threads call this. n_row becomes the number
// of rows in all, and `tile` the one of tries.
__device__ __forceinline__ int2 row_of_block(const Work &w, Choice &choice, int n_batch, int n_peak, int n_round, int round, int tiles,
                                             int row0, const float *io, int &tile, int &n_row) {
    const int t = threadIdx.x, row = row0 + t;
    const int2 none = make_int2(-1, 0);
#if ALL == 1
    const int n_further = n_round - 1, first = row0 / n_further;
    int n = unsettled_samples(choice.open, w, n_batch, n_round, round + first) - round;
    n_row = min(n, LOT) * n_further;
    if (t >= TILE_M || row >= n_row) return none;
    return make_int2(choice.open.sample[row / n_further - first], 1 + row % n_further);
#elif ALL == 2
    Forecast &f = choice.forecast;
    if (!make_forecast(f, w, n_batch, n_peak, n_round, row0, round, io)) return none;
    if (LISTED) n_row = (int)*w.n_failed;
    if (tile >= tiles) {
        int2 tried = try_of(f, tile - tiles, t, tile);
        return tried.x < 0 ? none : make_int2(f.sample[tried.x], tried.y);
    }
    if (t >= TILE_M || f.sample[t] < 0) return none;
    if (!LISTED && tile == 0) w.need[row] = f.round[t];
    return f.round[t] > 0 ? make_int2(f.sample[t], f.round[t]) : none;
#else
    bool there = t < TILE_M && row < n_batch && (round == 0 || takes_part(w, row, round, n_round, n_peak > 0));
    return there ? make_int2(row, round) : none;
#endif
}

// Leave word of the outputs that met a bound: for a forecast after round 0, of tries, or of a round.
__device__ __forceinline__ void note_bounds(const Work &w, int n_batch, int n_peak, int tile, bool first, bool foretold, const Rows &rows) {
    int t = threadIdx.x, s = t < TILE_M ? rows.sample[t < TILE_M ? t : 0] : -1;
    if (s < 0) return;
    u32 met = 0;
    for (int k = 0; k < PEAKS; ++k) {
        u32 peak = rows.met[t * PEAKS + k];
        met = max(met, peak);
        if (first && tile * PEAKS + k < n_peak) w.peaks[(u64)s * n_peak + tile * PEAKS + k] = peak;
    }
    if (first && n_peak > 0) {
        if (tile == 0) w.met[s] = w.late[s] = w.count[s] = 0;
        if (NOTED && met) note_failure(w, s);
    } else if (met) {
        if (foretold) atomicOr(&w.met[s], 1u << rows.round[t]);
        else atomicMax(&w.need[s], BY_ROUND + rows.round[t] + 1);
    }
}

// Give the samples whose last block this is the results of the first round that passed, or of the last one.
// The further rounds of a sample are neighbouring rows; n_row in all, row0 the first of this block's tile.
__device__ __forceinline__ void select_rounds(const Work &w, const Open &open, int n_further, int n_row, int row0, int n_tile, int n_out,
                                              Rows &rows, float *y) {
    int t = threadIdx.x, first = row0 / n_further, last = (min(row0 + TILE_M, n_row) - 1) / n_further;
    if (t < TILE_M && rows.met[t]) atomicOr(&w.late[rows.sample[t]], 1u << rows.round[t]);
    __threadfence();
    __syncthreads();
    if (t <= last - first) {
        int j = first + t, s = open.sample[t];
        int n_block = ((j + 1) * n_further - 1) / TILE_M - j * n_further / TILE_M + 1;
        bool done = atomicAdd(&w.count[s], 1u) + 1 == (u32)(n_block * n_tile);
        rows.sample[t] = done ? s : -1;
        if (done) {
            __threadfence();
            u32 met = __ldcg(&w.late[s]);
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

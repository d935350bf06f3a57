// A pulsed update for few cells and many samples: a block has 32 columns of one row. All its warps list the
// samples that pulse the row; each finds, and draws for, the pulses of 32 listed samples; the first one applies
// them, samples ascending. Where few samples pulse a row, this takes the time in which a block reads its line of d.
#pragma once
#include "pulse_lists.cuh"

#define WARPS (THREADS / 32)
#define PASSES 3  // words of d that a thread reads at a time: PASSES * WARPS <= 32
#define ROOM ((PASSES + 1) * THREADS)

struct Scan {
    int sample[ROOM];  // those listed, and word 0 of their train of d
    u32 word[ROOM];
    u32 counts[PASSES * WARPS];
    // Of the 32 samples of each warp: keys of their draws; masks of each column, and where its draws begin in the queue.
    uint2 key[WARPS][32];
    u32 hit[WARPS][32], up[WARPS][32], many[WARPS][32];
    unsigned short begin[WARPS][32];
    u32 queue[WARPS][QUEUE];
};

// Words of d of samples THREADS apart; bit k of `fired`: the k-th pulses the row.
struct Ahead { u32 word[PASSES], fired; };

__device__ __forceinline__ Ahead words_ahead(const Update &u, int first, int row) {
    Ahead ahead;
    ahead.fired = 0u;
#pragma unroll
    for (int k = 0; k < PASSES; ++k) {
        int s = first + k * THREADS + threadIdx.x;
        u32 any = 0u;
        ahead.word[k] = s < u.n_batch ? word_of_row(u, s, row, any) : 0u;
        if (any) ahead.fired |= 1u << k;
    }
    return ahead;
}

// Add the samples from number `first` on that pulse the row to a list that has n, in order; returns its new length.
__device__ __forceinline__ int list_ahead(Scan &scan, const Ahead &ahead, int first, int n) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 fired[PASSES];
#pragma unroll
    for (int k = 0; k < PASSES; ++k) {
        fired[k] = __ballot_sync(ALL_LANES, ahead.fired >> k & 1u);
        if (lane == 0) scan.counts[k * WARPS + warp] = __popc(fired[k]);
    }
    __syncthreads();
    int own = lane < PASSES * WARPS ? (int)scan.counts[lane] : 0, end = own;
    for (int step = 1; step < 32; step <<= 1) {
        int before = __shfl_up_sync(ALL_LANES, end, step);
        if (lane >= step) end += before;
    }
#pragma unroll
    for (int k = 0; k < PASSES; ++k) {
        int at = n + __shfl_sync(ALL_LANES, end - own, k * WARPS + warp) + __popc(fired[k] & ((1u << lane) - 1u));
        if (ahead.fired >> k & 1u) {
            scan.sample[at] = first + k * THREADS + threadIdx.x;
            scan.word[at] = ahead.word[k];
        }
    }
    int total = __shfl_sync(ALL_LANES, end, 31);
    __syncthreads();
    return n + total;
}

// The warp's share of the n listed samples from number `done` on: masks of the columns, and all first draws.
__device__ __forceinline__ void find_pulses(const Update &u, bool noisy, Scan &scan, int done, int n, int row, int col) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, base = done + warp * 32, k = min(n - base, 32), begin = 0;
    Masks m = {0u, 0u, 0u};
    if (k > 0) {  // the same for a warp
        const int *sample = scan.sample + base;
        if (lane < k) {
            uint4 b = rk_block(u.key, OP_STEP, u.first_row + row, u.first_sample + sample[lane], 0u);
            scan.key[warp][lane] = make_uint2(b.x, b.y);
        }
        __syncwarp();
        m = masks_of(u, sample, scan.word + base, k, row, col, 0);
        if (noisy && __any_sync(ALL_LANES, m.hit))
            begin = draw(&m, ~0u, k, scan.key[warp], tile_column(u, col - lane), scan.queue[warp]);
    }
    scan.hit[warp][lane] = m.hit;
    scan.up[warp][lane] = m.up;
    scan.many[warp][lane] = m.many;
    scan.begin[warp][lane] = (unsigned short)begin;
}

// Those of the list from number `done` on begin it; returns how many they are, fewer than THREADS.
__device__ __forceinline__ int keep_rest(Scan &scan, int done, int n) {
    int t = threadIdx.x, rest = n - done;
    if (done == 0 || rest <= 0) return max(rest, 0);
    int sample = t < rest ? scan.sample[done + t] : 0;
    u32 word = t < rest ? scan.word[done + t] : 0u;
    __syncthreads();
    if (t < rest) { scan.sample[t] = sample; scan.word[t] = word; }
    return rest;
}

__device__ __forceinline__ u32 update_by_scan(const Update &u, const REAL *g, Scan &scan) {
    const int lane = threadIdx.x & 31, row = blockIdx.y, col = blockIdx.x * 32 + lane;
    const bool owns = threadIdx.x < 32 && col < u.n_in, noisy = g[0] != 0.0f;
    const u64 cell = (u64)row * u.n_in + col;
    REAL w = owns ? u.stored[cell] : 0.0f, p[N_PLANE];
    for (int k = 0; k < N_PLANE; ++k) p[k] = 0.0f;
    if (owns) planes_of_cell(u, cell, col, p);
    u32 of_cell = 0u;
    int last = -1, n = 0;
    Ahead ahead = words_ahead(u, 0, row);
    for (int first = 0; first < u.n_batch; first += PASSES * THREADS) {
        const int next = first + PASSES * THREADS;
        const Ahead now = ahead;
        ahead = words_ahead(u, next, row);
        n = list_ahead(scan, now, first, n);
        int done = 0;
        for (; n - done >= THREADS || (next >= u.n_batch && done < n); done += THREADS) {
            find_pulses(u, noisy, scan, done, n, row, col);
            __syncthreads();
            for (int i = 0; i < WARPS && owns; ++i) {
                Masks m = {scan.hit[i][lane], scan.up[i][lane], scan.many[i][lane]};
                if (!m.hit) continue;
                const int *sample = scan.sample + done + i * 32;
                const u32 *drawn = scan.queue[i] + scan.begin[i][lane];
                w = run_window(u, g, m, ~0u, sample, scan.word + done + i * 32, scan.key[i], row, col, drawn, w, p, of_cell);
                if (WRITE_NOISE) last = sample[31 - __clz((int)m.hit)];
            }
            __syncthreads();
        }
        n = keep_rest(scan, done, n);
    }
    if (of_cell) {
        u.stored[cell] = w;
        if (WRITE_NOISE) show(u, g[7], cell, last, w);
        if (COUNT) u.counts[cell] += of_cell;
    }
    return of_cell;
}

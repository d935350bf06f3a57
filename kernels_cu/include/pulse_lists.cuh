// A pulsed update in which each warp makes, for SPAN * 32 columns of a row and 32 samples at a time, a
// list of all pulses in shared memory, and all its lanes draw for that list: no lane waits while another
// draws. Then each lane applies the runs of its own cells, samples ascending.
#pragma once
#include "pulse_cells.cuh"
#include "rk_bits.cuh"

#define QUEUE 1024      // places of a warp's list: all cells of 32 / SPAN samples
#define SLICED_FROM 6   // samples from which bit slices are read, and
#define SLICED_SLOTS 4  // slots of one sample up to which

// What 32 samples do to one cell: bit a belongs to sample a of the list.
struct Masks { u32 hit, up, many; };  // whether it is pulsed; up; by more than one pulse

// From bit slices: word k of x_slices (n_batch, n_block, 32) has slot k of 32 columns, word 31 their signs.
// A lane reads for a sample; the transpose gives it the samples of its column.
__device__ __forceinline__ Masks masks_of_slices(const Update &u, const int *sample, u32 d0, int n, int block) {
    int lane = threadIdx.x & 31, n_block = (u.n_in + 31) / 32;
    bool mine = lane < n && block < n_block;
    const u32 *slices = u.x_slices + ((u64)sample[lane < n ? lane : 0] * n_block + (mine ? block : 0)) * 32;
    u32 left = mine ? d0 & ~SIGN_BIT : 0u;
    Masks m = {0u, mine ? slices[31] ^ (d0 & SIGN_BIT ? ~0u : 0u) : 0u, 0u};
    m.up = rk_transpose_bits(m.up);
    while (__any_sync(ALL_LANES, left)) {
        u32 fired = rk_transpose_bits(left ? slices[__ffs((int)left) - 1] : 0u);
        left &= left - 1u;
        m.many |= m.hit & fired;
        m.hit |= fired;
    }
    if (u.flip) m.up = ~m.up;
    return m;
}

__device__ __forceinline__ Masks masks_of_words(const Update &u, const int *sample, const u32 *word, int n, int row, int col) {
    Masks m = {0u, 0u, 0u};
    if (col >= u.n_in) return m;
    for (int a = 0; a < n; ++a) {
        u32 x0 = u.x_train[(u64)sample[a] * N_WORD * u.n_in + col];
#if N_WORD == 1 && !IMPLICIT
        u32 both = x0 & word[a] & ~SIGN_BIT;
        bool hit = both != 0u, many = (both & (both - 1u)) != 0u;
#else
        int count = coincidences(u, x0, word[a], sample[a], row, col);
        bool hit = count != 0, many = count > 1;
#endif
        if (hit) m.hit |= 1u << a;
        if (many) m.many |= 1u << a;
        if (hit && goes_up(u, x0, word[a], sample[a], col)) m.up |= 1u << a;
    }
    return m;
}

// Masks of column c of a lane for k listed samples, in which pulses of the other polarity are left out.
__device__ __forceinline__ Masks masks_of(const Update &u, const int *sample, const u32 *word, int k, int row, int col, int c) {
    int lane = threadIdx.x & 31;
    u32 d0 = lane < k ? word[lane] : 0u;
    bool sliced = u.x_slices && k >= SLICED_FROM && !__any_sync(ALL_LANES, __popc(d0 & ~SIGN_BIT) > SLICED_SLOTS);
    Masks m = sliced ? masks_of_slices(u, sample, d0, k, (col - lane) / 32 + c) : masks_of_words(u, sample, word, k, row, col + c * 32);
    if (u.polarity) {
        m.hit &= u.polarity > 0 ? m.up : ~m.up;
        m.up = ~0u;
    }
    return m;
}

// The first draws of all hits in `window`, one after the other in the order of lanes, columns, samples.
// Returns where those of this lane begin.
__device__ __forceinline__ int draw(const Masks *m, u32 window, int n_sample, const uint2 *key, int col0, u32 *queue) {
    int lane = threadIdx.x & 31, n = 0, end;
    for (int c = 0; c < SPAN; ++c) n += __popc(m[c].hit & window);
    end = n;
    for (int step = 1; step < 32; step <<= 1) {
        int before = __shfl_up_sync(ALL_LANES, end, step);
        if (lane >= step) end += before;
    }
    int total = __shfl_sync(ALL_LANES, end, 31), at = end - n;
    __syncwarp();
#pragma unroll
    for (int c = 0; c < SPAN; ++c) {
        u32 left = m[c].hit & window;
#pragma unroll 8
        for (int a = 0; a < n_sample; ++a)  // all lanes in lockstep: finding the next bit costs more
            if (left >> a & 1u) queue[at++] = (u32)a << 16 | (u32)(c * 32 + lane);
    }
    __syncwarp();
    for (int i = lane; i < total; i += 32) {
        u32 e = queue[i];
        queue[i] = __float_as_uint(first_normal(key[e >> 16], col0 + (e & 0xffffu)));
    }
    __syncwarp();
    return end - n;
}

// The runs of the samples in `window` on one cell, which are added to its pulses; returns its weight after them.
__device__ __forceinline__ REAL run_window(const Update &u, const REAL *g, const Masks &m, u32 window, const int *sample, const u32 *word,
                                           const uint2 *key, int row, int col, const u32 *&drawn, REAL w, const REAL *p, u32 &of_cell) {
    bool noisy = g[0] != 0.0f;
    u32 left = m.hit & window;
    of_cell += __popc(left);
    for (; left; left &= left - 1u) {
        u32 bit = left & (0u - left);
        bool up = (m.up & bit) != 0u;
        float xi = noisy ? __uint_as_float(*drawn++) : 0.0f;
        if (m.many & bit) {
            int a = __ffs((int)bit) - 1;
            u32 x0 = u.x_train[(u64)sample[a] * N_WORD * u.n_in + col];
            int count = coincidences(u, x0, word[a], sample[a], row, col);
            w = run_of_pulses(w, p, g, up, count, xi, tile_column(u, col), key[a]);
            of_cell += count - 1;
        } else {
            w = STEP(w, p, g, up, (REAL)xi);
        }
    }
    return w;
}

// Up to 32 listed samples of one row, from `base` on, on the cells of a warp: `m` are their masks.
__device__ __forceinline__ void apply(const Update &u, const REAL *g, const Masks *m, int n_sample, const List &list, int base,
                                      int row, int col, REAL *w, REAL (*p)[N_PLANE], u32 *of_cell, u32 *queue) {
    u32 any = 0u;
    int n = 0;
    for (int c = 0; c < SPAN; ++c) {
        any |= m[c].hit;
        if (SPAN > 1) n += __popc(m[c].hit);
    }
    if (!__any_sync(ALL_LANES, any)) return;
    bool noisy = g[0] != 0.0f;
    int width = SPAN > 1 && noisy && __reduce_add_sync(ALL_LANES, n) > QUEUE ? 32 / SPAN : 32;
    for (int first = 0; first < n_sample; first += width) {
        u32 window = (~0u >> (32 - width)) << first;
        const u32 *drawn = noisy ? queue + draw(m, window, n_sample, list.key + base, tile_column(u, col - (threadIdx.x & 31)), queue) : 0;
#pragma unroll
        for (int c = 0; c < SPAN; ++c)
            w[c] = run_window(u, g, m[c], window, list.sample + base, list.word + base, list.key + base, row, col + c * 32, drawn, w[c], p[c], of_cell[c]);
    }
}

// All listed samples of one row on the cells of a warp.
__device__ __forceinline__ u32 update_row(const Update &u, const REAL *g, const List &list, int row, int col, u32 *queue) {
    u64 cell = (u64)row * u.n_in + col;
    int last[SPAN];
    REAL w[SPAN], p[SPAN][N_PLANE];
    u32 pulses = 0u, of_cell[SPAN];
#pragma unroll
    for (int c = 0; c < SPAN; ++c) {
        bool inside = col + c * 32 < u.n_in;
        w[c] = inside ? u.stored[cell + c * 32] : 0.0f;
        for (int k = 0; k < N_PLANE; ++k) p[c][k] = 0.0f;
        if (inside) planes_of_cell(u, cell + c * 32, col + c * 32, p[c]);
        of_cell[c] = 0u;
        last[c] = -1;
    }
    for (int base = 0; base < list.n; base += 32) {
        int k = min(32, list.n - base);
        const int *sample = list.sample + base;
        Masks m[SPAN];
#pragma unroll
        for (int c = 0; c < SPAN; ++c) {
            m[c] = masks_of(u, sample, list.word + base, k, row, col, c);
            if (WRITE_NOISE && m[c].hit) last[c] = sample[31 - __clz((int)m[c].hit)];
        }
        apply(u, g, m, k, list, base, row, col, w, p, of_cell, queue);
    }
#pragma unroll
    for (int c = 0; c < SPAN; ++c) {
        pulses += of_cell[c];
        if (of_cell[c] == 0u) continue;
        u.stored[cell + c * 32] = w[c];
        if (WRITE_NOISE) show(u, g[7], cell + c * 32, last[c], w[c]);
        if (COUNT) u.counts[cell + c * 32] += of_cell[c];
    }
    return pulses;
}

__device__ __forceinline__ u32 update_by_lists(const Update &u, const REAL *g, List *lists, u32 (*queues)[QUEUE]) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, row0 = blockIdx.y * ROWS;
    int col0 = (blockIdx.x * (THREADS / 32) + warp) * SPAN * 32;
    u32 pulses = 0u;
    for (int first = 0; first < u.n_batch; first += CHUNK) {
        list_rows(u, first, row0, lists);
        for (int r = 0; r < ROWS; ++r)
            if (lists[r].n && col0 < u.n_in)  // the same for a warp
                pulses += update_row(u, g, lists[r], row0 + r, col0 + lane, queues[warp]);
    }
    return pulses;
}

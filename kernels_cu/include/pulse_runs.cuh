// Common parts of the work distributions of a pulsed update (pulse_walk.cuh, pulse_lists.cuh): lists of the
// samples that pulse a row, numbers of coincidences, the run of pulses of one sample on one cell. Uses
// the macros of pulsed_update.cu.
#pragma once
#include "rk_philox.cuh"
#include "device_steps.cuh"

#ifndef BY_COLUMNS  // 1: the arrays are some columns of a tile
#define BY_COLUMNS 0
#endif
#define OP_STEP 7u
#define OP_WRITE_NOISE 13u
#define SIGN_BIT 0x80000000u
#define ALL_LANES 0xffffffffu
#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)

struct Update {
    int n_batch, n_in, n_out, flip, polarity;
    u64 first_sample;
    const REAL *planes, *globals;
    const u32 *x_train, *x_slices, *d_train;
    REAL *weight, *stored;
    i64 *counts;
    uint2 key;
    const float *numbers;  // of the recipe, where there is one instead of planes
    u64 first_row;  // number of row 0 in its tile: draws have the rows and cells of the whole tile
    int first_col, tile_cols;  // likewise of column 0, and the columns of the tile, where BY_COLUMNS is 1
};

// Numbers of a column and of a cell in the tile.
__device__ __forceinline__ int tile_column(const Update &u, int col) { return BY_COLUMNS ? u.first_col + col : col; }

__device__ __forceinline__ u64 tile_cell(const Update &u, u64 cell) {
    if (!BY_COLUMNS) return u.first_row * u.n_in + cell;
    return (u.first_row + cell / u.n_in) * u.tile_cols + u.first_col + cell % u.n_in;
}

// Samples of one chunk that pulse a row, in order: word 0 of their train of d, and the key that the draws
// of this row and sample have.
struct List {
    int sample[CHUNK];
    u32 word[CHUNK];
    uint2 key[CHUNK];
    int n;
};

// Philox2x32-10: half the work of a block of four words, and one or two are used.
__device__ __forceinline__ uint2 philox2x32(u32 c0, u32 c1, u32 key) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u32 high = __umulhi(0xD256D193u, c0), low = 0xD256D193u * c0;
        c0 = high ^ key ^ c1;
        c1 = low;
        key += 0x9E3779B9u;
    }
    return make_uint2(c0, c1);
}

// The draw of the first pulse of a run: two neighbouring cells share a block.
__device__ __forceinline__ float first_normal(uint2 key, u32 col) {
    uint2 b = philox2x32(col >> 1, key.y, key.x);
    return rk_normal(col & 1u ? b.y : b.x);
}

// The run of n pulses of one sample on one cell; xi was drawn for the first.
__device__ __forceinline__ REAL run_of_pulses(REAL w, const REAL *p, const REAL *g, bool up, int n, REAL xi, u32 col,
                                              uint2 key) {
#if HAS_RUN
    if (n > 1 && PASTE(STEP, _run)(w, p, g, up, n, xi)) return w;
#endif
    w = STEP(w, p, g, up, xi);
    uint2 b = make_uint2(0u, 0u);
    for (int pulse = 1; pulse < n; ++pulse) {
        if (g[0] != 0.0f && (pulse & 1)) b = philox2x32(col, key.y ^ (u32)(pulse + 1) >> 1, key.x);
        w = STEP(w, p, g, up, (REAL)(g[0] != 0.0f ? rk_normal(pulse & 1 ? b.x : b.y) : 0.0f));
    }
    return w;
}

// How many pulses one line of x and one of d make in a sample; x0 and d0 are words 0 of their trains.
__device__ __forceinline__ int coincidences(const Update &u, u32 x0, u32 d0, int sample, int row, int col) {
#if IMPLICIT == 2
    return (int)rk_rint((REAL)((x0 & 0x1fffu) * (d0 & 0x1fffu)) / (REAL)(d0 >> 13 & 0x1fffu));
#elif IMPLICIT
    return (int)rintf(fabsf(__uint_as_float(d0) * __uint_as_float(x0)));
#else
    int n = __popc(x0 & d0 & ~SIGN_BIT);
    const u32 *x = u.x_train + (u64)sample * N_WORD * u.n_in + col, *d = u.d_train + (u64)sample * N_WORD * u.n_out + row;
    for (int w = 1; w < N_WORD; ++w) n += __popc(x[(u64)w * u.n_in] & d[(u64)w * u.n_out] & ~SIGN_BIT);
    return n;
#endif
}

// Whether the pulses of a line of x with word 0 x0 go up; a word that fired nothing has no sign, so
// those that follow are tested too. d0 has the sign of any of its words (see list_row).
__device__ __forceinline__ bool goes_up(const Update &u, u32 x0, u32 d0, int sample, int col) {
    const u32 *x = u.x_train + (u64)sample * N_WORD * u.n_in + col;
    for (int w = 1; w < N_WORD; ++w) x0 |= x[(u64)w * u.n_in];
    return (((x0 ^ d0) >> 31) ^ (u32)u.flip) != 0u;
}

// The lanes of a warp add their samples to a list that has n, in order, where they pulse the row; returns
// its new length. `word` is word 0 of the train of d, with the sign of any of its words.
__device__ __forceinline__ int enlist(const Update &u, List &list, int n, int s, int row, u32 word, bool pulses) {
    u32 active = __ballot_sync(ALL_LANES, pulses);
    if (pulses) {
        int at = n + __popc(active & ((1u << (threadIdx.x & 31)) - 1u));
        uint4 b = rk_block(u.key, OP_STEP, u.first_row + row, u.first_sample + s, 0u);
        list.sample[at] = s;
        list.word[at] = word;
        list.key[at] = make_uint2(b.x, b.y);
    }
    return n + __popc(active);
}

// Word 0 of the train of d of a sample and row, with the sign of any of its words; `any` is 0 where none fired.
__device__ __forceinline__ u32 word_of_row(const Update &u, int s, int row, u32 &any) {
    const u32 *d = u.d_train + (u64)s * N_WORD * u.n_out + row;
    u32 w0 = 0u;
    any = 0u;
    for (int w = N_WORD - 1; w >= 0; --w) { w0 = d[(u64)w * u.n_out]; any |= w0; }
    return w0 | (any & SIGN_BIT);
}

// One warp lists the samples of [first, last) that pulse a row.
__device__ __forceinline__ void list_row(const Update &u, int first, int last, int row, List &list) {
    int lane = threadIdx.x & 31, n = 0;
    for (int s0 = first; s0 < last; s0 += 32) {
        int s = s0 + lane;
        u32 any = 0u, w0 = s < last && row < u.n_out ? word_of_row(u, s, row, any) : 0u;
        n = enlist(u, list, n, s, row, w0, any != 0u);
    }
    if (lane == 0) list.n = n;
}

// All warps list the rows row0 .. row0 + ROWS - 1; a barrier before, since the lists were read, and after.
__device__ __forceinline__ void list_rows(const Update &u, int first, int row0, List *lists) {
    int last = min(first + CHUNK, u.n_batch);
    __syncthreads();
    for (int r = threadIdx.x >> 5; r < ROWS; r += THREADS / 32) list_row(u, first, last, row0 + r, lists[r]);
    __syncthreads();
}

// Show a cell that got pulses through the noise of writing; s is the last sample that pulsed it.
__device__ __forceinline__ void show(const Update &u, REAL noise, u64 cell, int s, REAL w) {
    float xi = rk_normal(rk_word(u.key, OP_WRITE_NOISE, tile_cell(u, cell), u.first_sample + s, 0u));
    u.weight[cell] = rk_fma(noise, (REAL)xi, w);
}

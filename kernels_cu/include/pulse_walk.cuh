// A pulsed update in which each thread loops over the samples of a row for CELLS neighbouring columns: wide
// loads and little overhead, for few samples. A warp waits for the lane with most pulses.
#pragma once
#include "pulse_cells.cuh"

#ifndef X_WORDS  // where the words of x of CELLS columns from col on are
#define X_WORDS(u, s, col) ((u).x_train + (u64)(s) * N_WORD * (u).n_in + (col))
#endif

// One thread's cells of one row; returns the number of their pulses.
__device__ __forceinline__ u32 walk_row(const Update &u, const REAL *g, const List &list, int row, int col) {
    u64 cell = (u64)row * u.n_in + col;
    REAL w[CELLS], p[CELLS][N_PLANE];
    int last[CELLS];
    u32 pulses = 0u, of_cell[CELLS];
    LOAD(w, u.stored + cell);
    planes_of_cells(u, cell, p);
    for (int c = 0; c < CELLS; ++c) { last[c] = -1; of_cell[c] = 0u; }
    for (int a = 0; a < list.n; ++a) {
        int s = list.sample[a];
        u32 d0 = list.word[a], x0[CELLS];
        LOAD_WORDS(x0, X_WORDS(u, s, col));
#pragma unroll
        for (int c = 0; c < CELLS; ++c) {
            int count = coincidences(u, x0[c], d0, s, row, col + c);
            if (count == 0) continue;
            bool up = goes_up(u, x0[c], d0, s, col + c);
            if (u.polarity && up != (u.polarity > 0)) continue;
            up = up || u.polarity;
            if (PROCEDURAL && last[c] < 0) planes_of_cell(u, cell + c, col + c, p[c]);
            float xi = g[0] != 0.0f ? first_normal(list.key[a], tile_column(u, col + c)) : 0.0f;
            w[c] = run_of_pulses(w[c], p[c], g, up, count, xi, tile_column(u, col + c), list.key[a]);
            of_cell[c] += count;
            last[c] = s;
        }
    }
    STORE(u.stored + cell, w);
    for (int c = 0; c < CELLS; ++c) {
        if (WRITE_NOISE && last[c] >= 0) show(u, g[7], cell + c, last[c], w[c]);
        if (COUNT && of_cell[c]) u.counts[cell + c] += of_cell[c];
        pulses += of_cell[c];
    }
    return pulses;
}

__device__ __forceinline__ u32 update_by_walk(const Update &u, const REAL *g, List *lists) {
    int row0 = blockIdx.y * ROWS, col = (blockIdx.x * THREADS + threadIdx.x) * CELLS;
    u32 pulses = 0u;
    for (int first = 0; first < u.n_batch; first += CHUNK) {
        list_rows(u, first, row0, lists);
        for (int r = 0; r < ROWS; ++r)
            if (lists[r].n && col < u.n_in) pulses += walk_row(u, g, lists[r], row0 + r, col);
    }
    return pulses;
}

// Loads and stores of cells in a pulsed update: the only file that depends on the layout of planes.
// CELLS neighbouring cells of a thread at a time (pulse_walk.cuh), or single ones (pulse_lists.cuh).
// With PROCEDURAL 1 planes are drawn from the recipe of the tile (cell_planes.cuh) for cells that are pulsed.
#pragma once
#ifndef PROCEDURAL
#define PROCEDURAL 0
#endif
#include "pulse_runs.cuh"
#if PROCEDURAL
#include "cell_planes.cuh"
// The numbers of a recipe in shared memory, for all threads of a block: there is a barrier in it.
#define RECIPE_NUMBERS(name, recipe) \
    __shared__ float name[RECIPE]; \
    rk_read_recipe(name, recipe); \
    __syncthreads()
#else
#define RECIPE_NUMBERS(name, recipe) const float *name = 0
#endif

#define REAL2 PASTE(REAL, 2)
#if CELLS == 4  // of float only: 16 bytes are read at a time
#define LOAD(r, ptr) { float4 v4 = *(const float4 *)(ptr); r[0] = v4.x; r[1] = v4.y; r[2] = v4.z; r[3] = v4.w; }
#define LOAD_WORDS(r, ptr) { uint4 v4 = *(const uint4 *)(ptr); r[0] = v4.x; r[1] = v4.y; r[2] = v4.z; r[3] = v4.w; }
#define STORE(ptr, r) *(float4 *)(ptr) = make_float4(r[0], r[1], r[2], r[3])
#elif CELLS == 2
#define LOAD(r, ptr) { REAL2 v2 = *(const REAL2 *)(ptr); r[0] = v2.x; r[1] = v2.y; }
#define LOAD_WORDS(r, ptr) { uint2 v2 = *(const uint2 *)(ptr); r[0] = v2.x; r[1] = v2.y; }
#define STORE(ptr, r) *(REAL2 *)(ptr) = PASTE(make_, REAL2)(r[0], r[1])
#else
#define LOAD(r, ptr) r[0] = *(ptr)
#define LOAD_WORDS(r, ptr) r[0] = *(ptr)
#define STORE(ptr, r) *(ptr) = r[0]
#endif

// Planes of one cell, of column col.
__device__ __forceinline__ void planes_of_cell(const Update &u, u64 cell, int col, REAL *p) {
#if PROCEDURAL
    float drawn[N_DRAWN];
    int n_col = BY_COLUMNS ? u.tile_cols : u.n_in;
    rk_planes_of_recipe(drawn, u.numbers, u.planes, tile_cell(u, cell), tile_column(u, col) == n_col - 1);
    for (int k = 0; k < N_PLANE; ++k) p[k] = (REAL)drawn[k];
#else
    u64 n_cell = (u64)u.n_out * u.n_in;
    for (int k = 0; k < N_PLANE; ++k) p[k] = u.planes[k * n_cell + cell];
#endif
}

// Planes of CELLS neighbouring cells of a row, where they are stored.
__device__ __forceinline__ void planes_of_cells(const Update &u, u64 cell, REAL (*p)[N_PLANE]) {
#if !PROCEDURAL
    u64 n_cell = (u64)u.n_out * u.n_in;
    for (int k = 0; k < N_PLANE; ++k) {
        REAL q[CELLS];
        LOAD(q, u.planes + k * n_cell + cell);
        for (int c = 0; c < CELLS; ++c) p[c][k] = q[c];
    }
#endif
}

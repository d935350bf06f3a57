// Draw the parameters of a tile's cells: planes with device-to-device spread, and arrays of slow processes.
//
//   recipe (40, then n_out n_in with POINTS)   REAL, numbers of the whole tile: cell_planes.cuh
//   out (n, n_row, n_in)                       REAL, of the tile from row first_row and column first_col on; its
//       rows have tile_cols cells. The first N_OUT planes (a model with a reference has its symmetry point behind them), then those of SLOW:
//       1 diffusion_rate, 2 reset_bias, 4 decay_scale, 8 drift_nu
//
// One thread a cell. Draws, op 8, index cell, sample 0: 0 w_max, 1 w_min, 2 step size, 3 asymmetry, 4 whether
// stuck, 5 where, 6 to 9 of the slow processes, 16 to 18 of the model (docs/devices.md).
// Macros: REAL, PLANES_OF (function of the model, cell_planes.cuh), N_PLANE, POINTS, N_OUT, SLOW.
// mirror: rpukit/analog/_mirror/planes.py::cell_planes
// op: rpukit.analog.cells.draw.cell_planes
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: PLANES_OF=linear_planes N_PLANE=6 N_OUT=6
// check: PLANES_OF=linear_planes N_PLANE=6 N_OUT=2 SLOW=4
// check: PLANES_OF=linear_reference_planes N_PLANE=7 N_OUT=8 SLOW=15
// check: PLANES_OF=pow_planes N_PLANE=6 N_OUT=6
// check: PLANES_OF=pow_reference_planes N_PLANE=7 N_OUT=8
// check: PLANES_OF=pow_reference_planes N_PLANE=7 N_OUT=7 POINTS=1 REAL=double
// source: Rasch et al., AICAS 2021.
#include "cell_planes.cuh"

#ifndef N_OUT
#define N_OUT 4
#endif
#ifndef SLOW
#define SLOW 0
#endif

extern "C" __global__ void __launch_bounds__(256)
cell_planes(int n_in, int first_row, int first_col, int tile_cols, int n_row, const REAL *recipe, REAL *out) {
    __shared__ float q[RECIPE];
    rk_read_recipe(q, recipe);
    __syncthreads();
    u64 n = (u64)n_row * n_in, i = (u64)blockIdx.x * 256 + threadIdx.x, col = first_col + i % n_in;
    if (i >= n) return;
    u64 cell = (first_row + i / n_in) * tile_cols + col;
    float p[N_DRAWN];
    rk_planes_of_recipe(p, q, recipe, cell, col == (u64)tile_cols - 1);
    for (int k = 0; k < N_OUT; ++k) out[k * n + i] = (REAL)p[k];
    uint2 key = rk_recipe_key(q);
    REAL *slow = out + N_OUT * n + i;
    if (SLOW & 1) { *slow = (REAL)rk_diffusion_rate(q, key, cell); slow += n; }
    if (SLOW & 2) { *slow = (REAL)rk_reset_bias(q, key, cell, N_PLANE > 6 ? p[N_DRAWN - 1] : 0.0f); slow += n; }
    if (SLOW & 4) { *slow = (REAL)rk_decay_scale(q, key, cell); slow += n; }
    if (SLOW & 8) *slow = (REAL)rk_drift_nu(q, key, cell);
}

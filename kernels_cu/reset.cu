// Reset columns of a tile: each of their cells, with probability `prob`, to w = b + std xi, then clip.
//
//   bias, low, high, weight (n_out, n_in)   REAL; bias may be null for b = 0
//   chosen (n_out, n_in)                    REAL, 0 leaves a cell alone; may be null for all
//   Columns first_col .. first_col + n_col - 1, counted modulo n_in.
//   status (1): not zero: do nothing
//
// One thread a cell of the n_out x n_col that may be reset. Draws: op 11, index = number of the
// cell in its tile (rk_cells.cuh), sample = event, draw 0 whether, draw 1 xi. BOUNDED 0 clips to the range of the type. Macros: BOUNDED, REAL.
// mirror: rpukit/analog/_mirror/slow.py::reset
// op: rpukit.analog.processes.ops.reset
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: BOUNDED=0
// check: REAL=double
// source: Gokmen, Haensch, Front. Neurosci. 14:103 (2020) use it on the fast array.
#include "rk_cells.cuh"
#include "rk_philox.cuh"
#include "device_steps.cuh"

#ifndef BOUNDED
#define BOUNDED 1
#endif
#define OP_RESET 11u

extern "C" __global__ void __launch_bounds__(256)
reset(int n_out, int n_in, int first_col, int n_col, u64 first, int pitch, REAL prob, REAL std, u64 event, const REAL *bias,
      const REAL *chosen, const REAL *low, const REAL *high, REAL *weight, const int *status, u32 key0, u32 key1) {
    u64 k = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || k >= (u64)n_out * n_col) return;
    u64 i = k / n_col * n_in + (first_col + k % n_col) % n_in;
    if (chosen && chosen[i] == 0.0f) return;
    uint4 b = rk_block(make_uint2(key0, key1), OP_RESET, rk_cell(first, i, n_in, pitch), event, 0u);
    if (!(rk_uniform(b.x) < prob)) return;
    REAL w = rk_fma(std, (REAL)rk_normal(b.y), bias ? bias[i] : (REAL)0);
    weight[i] = BOUNDED ? rk_clip(w, low[i], high[i]) : rk_hold(w);
}

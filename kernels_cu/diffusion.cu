// Add Gaussian diffusion to weights: w = w + rate xi, then clip.
//
//   rate, low, high, weight (n)   REAL; status (1): not zero: do nothing
//
// One thread a cell. Draws: op 10, index = number of the cell in its tile (rk_cells.cuh), sample = event, draw 0.
// BOUNDED 0 (ideal cells) clips to the range of the type. Macros: BOUNDED, REAL.
// mirror: rpukit/analog/_mirror/slow.py::diffusion
// op: rpukit.analog.processes.ops.diffusion
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: BOUNDED=0
// check: REAL=double
// source: a random walk of the conductance.
#include "rk_cells.cuh"
#include "rk_philox.cuh"
#include "device_steps.cuh"

#ifndef BOUNDED
#define BOUNDED 1
#endif
#define OP_DIFFUSION 10u

extern "C" __global__ void __launch_bounds__(256)
diffusion(u64 n, u64 first, int width, int pitch, u64 event, const REAL *rate, const REAL *low, const REAL *high, REAL *weight,
          const int *status, u32 key0, u32 key1) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    REAL xi = rk_normal(rk_word(make_uint2(key0, key1), OP_DIFFUSION, rk_cell(first, i, width, pitch), event, 0u));
    REAL w = rk_fma(rate[i], xi, weight[i]);
    weight[i] = BOUNDED ? rk_clip(w, low[i], high[i]) : rk_hold(w);
}

// A tile: exact rank update, in place, weights -= lr d x^T, as ideal cells do.
//
//   ints: rows, columns, samples; floats: rate; weight (rows, columns), x (samples, columns), d (samples, rows)
//
// One thread a cell: one chain that starts from the weight, samples ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/analog.py::tiled_rank_update
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: the rank update of rank_update.cu.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_rank_update(const i64 *ints, const REAL *floats, REAL *weight, const REAL *x, const REAL *d) {
    i64 cell = (i64)blockIdx.x * 256 + threadIdx.x, rows = ints[0], n_in = ints[1];
    if (cell >= rows * n_in) return;
    i64 row = cell / n_in, col = cell % n_in;
    REAL w = weight[cell];
    for (i64 s = 0; s < ints[2]; ++s) w = rk_hold(rk_fma(rk_hold(-floats[0] * d[s * rows + row]), x[s * n_in + col], w));
    weight[cell] = w;
}

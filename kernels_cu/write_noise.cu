// Add write noise to persistent weights: weight = persistent + std xi, not clipped.
//
//   persistent, weight (n)   REAL; status (1): not zero: do nothing
//
// One thread a cell. Draws: op 12, index = number of the cell in its tile (rk_cells.cuh), sample = event, draw 0. Macro: REAL.
// mirror: rpukit/analog/_mirror/slow.py::write_noise
// op: rpukit.analog.processes.ops.write_noise
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: the apparent weight of a device with write noise (Rasch et al., AICAS 2021).
#include "rk_real.cuh"
#include "rk_cells.cuh"
#include "rk_philox.cuh"

#define OP_WRITE_NOISE 12u

extern "C" __global__ void __launch_bounds__(256)
write_noise(u64 n, u64 first, int width, int pitch, REAL std, u64 event, const REAL *persistent, REAL *weight, const int *status, u32 key0, u32 key1) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    REAL xi = rk_normal(rk_word(make_uint2(key0, key1), OP_WRITE_NOISE, rk_cell(first, i, width, pitch), event, 0u));
    weight[i] = rk_hold(rk_fma(std, xi, persistent[i]));
}

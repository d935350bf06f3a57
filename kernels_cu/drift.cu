// Apply power-law drift since each cell's last write, then clip.
//
//   A cell whose weight differs from `previous` by more than `tol` was written since the last call:
//   origin = w, written = now, and it rests in this call. Every other cell goes to
//     f = max(now - written, 1)^(-nu),  w = origin f + offset (f - 1) + noise_std xi
//   with nu = nu_cell (1 + nu_std xi'), less nu_k (log g - log_g0) where nu_k is not 0 and the
//   conductance g = (w - w_offset) / wg_ratio + g_offset of the cell is positive.
//   Event 0 is the first call: origin = w and written = 0 everywhere, and the cells drift.
//
//   nu_cells, low, high (n)              REAL; nu_cells may be null for nu everywhere
//   weight, origin, previous (n)         REAL, changed in place
//   written (n)                          float64, in units of t_0 like now
//   status (1)                           not zero: do nothing
//
// One thread a cell. Draws: op 14, index = number of the cell in its tile (rk_cells.cuh), sample = event,
// draw 0 xi', draw 1 xi.
// BOUNDED 0 (ideal cells) clips to the range of the type; so are f and its factors. Macros: BOUNDED, REAL.
// mirror: rpukit/analog/_mirror/slow.py::drift
// op: rpukit.analog.processes.ops.drift
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: BOUNDED=0
// check: REAL=double
// source: Oh et al., IEEE Electron Device Letters 40:1325 (2019).
#include "rk_cells.cuh"
#include "rk_philox.cuh"
#include "device_steps.cuh"

#ifndef BOUNDED
#define BOUNDED 1
#endif
#define OP_DRIFT 14u

extern "C" __global__ void __launch_bounds__(256)
drift(u64 n, u64 first, int width, int pitch, u64 event, double now, REAL nu, REAL nu_std, REAL nu_k, REAL log_g0, REAL wg_ratio, REAL g_offset,
      REAL w_offset, REAL offset, REAL noise_std, REAL tol, const REAL *nu_cells, const REAL *low,
      const REAL *high, REAL *weight, REAL *origin, REAL *previous, double *written, const int *status, u32 key0,
      u32 key1) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n) return;
    REAL w = weight[i];
    if (event && rk_abs(w - previous[i]) > tol) {
        origin[i] = previous[i] = w;
        written[i] = now;
        return;
    }
    if (!event) {
        origin[i] = w;
        written[i] = 0.0;
    }
    uint4 b = make_uint4(0u, 0u, 0u, 0u);
    if (nu_std != 0.0f || noise_std != 0.0f) b = rk_block(make_uint2(key0, key1), OP_DRIFT, rk_cell(first, i, width, pitch), event, 0u);
    REAL rate = nu_cells ? nu_cells[i] : nu;
    if (nu_std != 0.0f) rate = rk_hold(rate * rk_fma(nu_std, (REAL)rk_normal(b.x), (REAL)1));
    if (nu_k != 0.0f) {
        REAL g = rk_hold(rk_hold(w - w_offset) / wg_ratio + g_offset);
        if (g > 0.0f) rate = rk_hold(rk_fma(-nu_k, rk_log(g) - log_g0, rate));
    }
    REAL age = rk_max(rk_hold((REAL)(now - written[i])), (REAL)1);
    REAL f = rk_hold(rk_exp(-rate * rk_log(age)));
    w = rk_hold(rk_fma(offset, f - (REAL)1, rk_hold(origin[i] * f)));
    if (noise_std != 0.0f) w = rk_fma(noise_std, (REAL)rk_normal(b.y), w);
    w = BOUNDED ? rk_clip(w, low[i], high[i]) : rk_hold(w);
    weight[i] = previous[i] = w;
}

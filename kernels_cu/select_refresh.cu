// Select pairs of one-sided devices to refresh, and what to write back to them.
//
// For cell (i, j) with the reads p of the positive and q of the negative device, full = bound * upper and
// some = bound * lower: the larger read above full and the smaller above some chooses the cell. Chosen
// cells are to be reset, then the positive device is written p - q, or the negative one q - p.
//
//   plus, minus (n_col, n_out)           REAL, reads of columns first_col .. first_col + n_col - 1
//   chosen (n_out, n_in)                 REAL, 1 or 0; those columns are written
//   rise_plus, rise_minus (n_col, n_out) REAL, what to add, as the d of an update with lr = -1
//   status (1)                           not zero: do nothing
//
// One thread a cell of those columns. Macro: REAL.
// mirror: rpukit/analog/_mirror/combine.py::select_refresh
// op: rpukit.analog.arrays.compound_ops.select_refresh
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: refresh of differential pairs (Rasch et al., AICAS 2021; Boybat et al., Nature Comm. 9:2514 (2018)).
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
select_refresh(int n_out, int n_in, int first_col, int n_col, REAL full, REAL some, const REAL *plus,
               const REAL *minus, REAL *chosen, REAL *rise_plus, REAL *rise_minus, const int *status) {
    u64 k = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || k >= (u64)n_col * n_out) return;
    int col = first_col + (int)(k / n_out), row = (int)(k % n_out);
    REAL p = plus[k], q = minus[k];
    bool up = p > q, take = up ? p > full && q > some : p > some && q > full;
    chosen[(u64)row * n_in + col] = take ? (REAL)1 : (REAL)0;
    rise_plus[k] = take && up ? p - q : (REAL)0;
    rise_minus[k] = take && !up ? q - p : (REAL)0;
}

// Take whole pulses out of rows of a digital gradient array.
//
//   n = trunc(chi / step); chi = fma(-n, step, chi)
//
//   chi (n_out, n_in)       REAL, changed in rows (first + k) mod n_out
//   pulses (n_row, n_in)    REAL, n of row (first + k) mod n_out
//   line (n_row, n_out)     REAL, 1 at that row, else 0: the d of an update that writes it
//   status (1)              not zero: do nothing
//
// One thread an element of pulses, then of line; n_row is at most n_out. Macro: REAL.
// mirror: rpukit/analog/_mirror/mixed_precision.py::take_pulses
// op: rpukit.analog.arrays.mixed_precision_ops.take_pulses
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Nandakumar et al., Front. Neurosci. 14:406 (2020), eq. 3.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
take_pulses(int n_row, int n_out, int n_in, int first, REAL step, REAL *chi, REAL *pulses, REAL *line,
            const int *status) {
    u64 e = (u64)blockIdx.x * 256 + threadIdx.x, n_pulse = (u64)n_row * n_in;
    if (*status || e >= n_pulse + (u64)n_row * n_out) return;
    bool takes = e < n_pulse;
    if (!takes) e -= n_pulse;
    int width = takes ? n_in : n_out, k = (int)(e / width), row = (first + k) % n_out;
    if (!takes) {
        line[e] = e % width == row ? (REAL)1 : (REAL)0;
        return;
    }
    u64 cell = (u64)row * n_in + e % width;
    REAL n = rk_trunc(rk_hold(chi[cell] / step));
    chi[cell] = rk_fma(-n, step, chi[cell]);
    pulses[e] = n;
}

// Compute the visible weight of cells with several devices: weight = sum_k gamma_k w_k.
//
//   devices (n_device, n_out, n_in)   REAL, the weight of each device of a cell
//   gamma (n_device)                  REAL
//   row_sign (n_out), col_sign (n_in) int8, +-1, or null: choppers on device 0, undone here
//   weight (n_out, n_in)              REAL
//   status (1)                        not zero: do nothing
//
// One thread a cell. Order: one chain of fused multiply-adds from 0, devices ascending. A device whose
// gamma is 0 is left out, so that what it holds does not matter.
// Macro: REAL.
// mirror: rpukit/analog/_mirror/combine.py::combine_devices
// op: rpukit.analog.arrays.compound_ops.combine_devices
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Gokmen, Haensch, Front. Neurosci. 14:103 (2020), eq. 3; Boybat et al., Nature Comm. 9:2514 (2018).
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
combine_devices(int n_device, int n_out, int n_in, const REAL *gamma, const REAL *devices,
                const signed char *row_sign, const signed char *col_sign, REAL *weight, const int *status) {
    u64 n_cell = (u64)n_out * n_in, i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n_cell) return;
    REAL w = 0.0f;
    for (int k = 0; k < n_device; ++k) {
        if (gamma[k] == 0.0f) continue;
        REAL v = devices[k * n_cell + i];
        if (row_sign && k == 0) v *= (REAL)row_sign[i / n_in];
        if (col_sign && k == 0) v *= (REAL)col_sign[i % n_in];
        w = rk_hold(rk_fma(gamma[k], v, w));
    }
    weight[i] = w;
}

// Make the visible weight of cells that hold several devices: weight = sum_k gamma_k w_k.
//
//   devices (n_device, n_out, n_in)   float32, the weight of each device of a cell
//   gamma (n_device)                  float32
//   row_sign (n_out), col_sign (n_in) float32, +-1: choppers on device 0, undone here; SIGNED 1 only
//   weight (n_out, n_in)              float32
//   status (1)                        not zero: do nothing
//
// One thread a cell. Order: one chain of fused multiply-adds from 0, devices ascending. A device whose
// gamma is 0 is left out, so that what it holds does not matter.
// Macros: SIGNED.
// mirror: rpukit/analog/_mirror/combine.py::combine_devices
// op: rpukit.analog.combine.combine_devices
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: SIGNED=1
// source: Gokmen, Haensch, Front. Neurosci. 14:103 (2020), eq. 3; Boybat et al., Nature Comm. 9:2514 (2018).
#include "rk_types.cuh"

#ifndef SIGNED
#define SIGNED 0
#endif

extern "C" __global__ void __launch_bounds__(256)
combine_devices(int n_device, int n_out, int n_in, const float *gamma, const float *devices, const float *row_sign,
                const float *col_sign, float *weight, const int *status) {
    u64 n_cell = (u64)n_out * n_in, i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (*status || i >= n_cell) return;
    float w = 0.0f;
    for (int k = 0; k < n_device; ++k) {
        if (gamma[k] == 0.0f) continue;
        float v = devices[k * n_cell + i];
        if (SIGNED && k == 0) v *= row_sign[i / n_in] * col_sign[i % n_in];
        w = __fmaf_rn(gamma[k], v, w);
    }
    weight[i] = w;
}

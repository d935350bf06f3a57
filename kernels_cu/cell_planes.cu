// Draw the cells of a tile: their planes, from the spread from device to device.
//
//   numbers (32)                   float32, of the whole tile: cell_planes.cuh
//   planes (N_OUT, n_out, n_in)    float32; a model with a reference has the symmetry point as its last
//
// One thread a cell. Draws, op 8, index cell, sample 0: 0 w_max, 1 w_min, 2 step size, 3 asymmetry, 4 whether
// stuck, 5 where, 16 to 18 of the model (docs/devices.md).
// Macros: PLANES_OF (function of the model, cell_planes.cuh), N_OUT.
// mirror: rpukit/analog/_mirror/planes.py::cell_planes
// op: rpukit.analog.sampling.cell_planes
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: PLANES_OF=linear_planes N_OUT=6
// check: PLANES_OF=linear_reference_planes N_OUT=8
// check: PLANES_OF=pow_planes N_OUT=6
// check: PLANES_OF=pow_reference_planes N_OUT=8
// source: Rasch et al., AICAS 2021.
#include "cell_planes.cuh"

#ifndef PLANES_OF
#define PLANES_OF shared_planes
#endif
#ifndef N_OUT
#define N_OUT 4
#endif

extern "C" __global__ void __launch_bounds__(256)
cell_planes(int n_out, int n_in, const float *numbers, float *planes, u32 key0, u32 key1) {
    u64 n_cell = (u64)n_out * n_in, cell = (u64)blockIdx.x * 256 + threadIdx.x;
    if (cell >= n_cell) return;
    float p[N_OUT];
    PLANES_OF(p, numbers, make_uint2(key0, key1), cell, cell % n_in == (u64)n_in - 1);
    for (int k = 0; k < N_OUT; ++k) planes[k * n_cell + cell] = p[k];
}

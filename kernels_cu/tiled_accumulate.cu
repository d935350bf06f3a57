// A tile: accumulate a gradient, or start a new accumulation: the gradient itself where `reset` says so, else the
// sum with it.
//
//   ints: elements; total, gradient (elements); reset (1)
//
// One thread an element. Macro: REAL.
// mirror: rpukit/tiled/_mirror/elementwise.py::tiled_accumulate
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, updates.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_accumulate(const i64 *ints, const REAL *floats, REAL *total, const REAL *gradient, const unsigned char *reset) {
    i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < ints[0]) total[i] = *reset ? gradient[i] : total[i] + gradient[i];
}

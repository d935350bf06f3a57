// Advance a sample clock of an analog tile by the samples of a step.
//
//   ints: 1, samples; clock (1). One thread.
// mirror: rpukit/tiled/_mirror/analog.py::tiled_advance
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: docs/semantics/tiled.md, analog tiles.
#include "rk_types.cuh"

extern "C" __global__ void tiled_advance(const i64 *ints, const float *floats, i64 *clock) {
    if (blockIdx.x == 0 && threadIdx.x == 0) clock[0] += ints[1];
}

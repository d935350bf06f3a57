// A tile: gradient of rounding, straight through where the integers are between two bounds, else 0.
//
//   ints: elements, lower and upper bound; floats: not used; dy, q, dx: packed rectangles
//
// One thread an element.
// mirror: rpukit/tiled/_mirror/narrow.py::tiled_quantise_grad
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: docs/semantics/tiled.md, small formats.
#include "tiled_narrow.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_quantise_grad(const i64 *ints, const float *floats, const float *dy, const i8 *q, float *dx) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= ints[0]) return;
    dx[i] = ints[1] < q[i] && q[i] < ints[2] ? dy[i] : 0.0f;
}

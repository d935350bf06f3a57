// A tile: numbers rounded to 8 or 16 bits.
//
//   ints: rows, length of a row, channels, kind; floats: not used
//   x, y: packed rectangles; scale: one for each channel, of which row i has number i % channels
//
// Kind 0: integers from -127 to 127 in units of the scale; 1: bits of float16; 2: 1 where x is positive, else 0.
// One thread an element. Macro: NARROW, the type of the result (i8, u16).
// mirror: rpukit/tiled/_mirror/narrow.py::tiled_quantise
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: NARROW=u16
// source: docs/semantics/tiled.md, small formats.
#include "tiled_narrow.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_quantise(const i64 *ints, const float *floats, const float *x, const float *scale, NARROW *y) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, length = ints[1];
    if (i >= ints[0] * length) return;
    const i64 kind = ints[3];
    const float v = x[i];
    y[i] = (NARROW)(kind == 0 ? tn_integer(v, scale[i / length % ints[2]]) : kind == 1 ? tn_half(v) : v > 0.0f);
}

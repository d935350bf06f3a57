// A tile: numbers of 8 or 16 bits as float.
//
//   ints: rows, length of a row, channels, kind; floats: not used
//   q, y: packed rectangles; scale: one for each channel, of which row i has number i % channels
//
// Kind 0: integers times the scale; 1: bits of float16; 2: integers. One thread an element. Macro: NARROW, the type of q
// (i8, u16).
// mirror: rpukit/tiled/_mirror/narrow.py::tiled_dequantise
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: NARROW=u16
// source: docs/semantics/tiled.md, small formats.
#include "tiled_narrow.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_dequantise(const i64 *ints, const float *floats, const NARROW *q, const float *scale, float *y) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x, length = ints[1];
    if (i >= ints[0] * length) return;
    const i64 kind = ints[3], v = q[i];
    y[i] = kind == 0 ? (float)v * scale[i / length % ints[2]] : kind == 1 ? tn_float(v) : (float)v;
}

// A tile: weights of samples, that of the label's class (1 without weights of classes), 0 for the class to ignore.
//
//   ints: samples, classes, whether there are weights, whether a class is ignored, which; floats: not used
//   labels (samples), weights (classes), y (samples)
//
// A thread owns one sample; a label out of range gives NaN. Macro: REAL.
// mirror: rpukit/tiled/_mirror/reductions.py::tiled_label_weights
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, losses.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_label_weights(const i64 *ints, const REAL *floats, const i64 *labels, const REAL *weights, REAL *y) {
    i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= ints[0]) return;
    i64 k = labels[i];
    REAL v = (REAL)RK_NAN;
    if (0 <= k && k < ints[1]) v = ints[2] ? weights[k] : (REAL)1;
    y[i] = ints[3] && k == ints[4] ? (REAL)0 : v;
}

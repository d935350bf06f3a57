// A tile: gradient of softmax cross-entropy, (exp(logprob) - onehot) / number of samples.
//
//   ints: samples, classes of the tile, the first of them, classes; floats: number of samples
//   logprob, y (samples, classes of the tile), labels (samples)
//
// A thread owns one element; a label out of range gives NaN. Macro: REAL.
// mirror: rpukit/tiled/_mirror/reductions.py::tiled_cross_entropy_grad
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, losses.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_cross_entropy_grad(const i64 *ints, const REAL *floats, const REAL *logprob, const i64 *labels, REAL *y) {
    i64 c = ints[1], e = (i64)blockIdx.x * 256 + threadIdx.x, i = e / c;
    if (i >= ints[0]) return;
    i64 label = labels[i];
    REAL hot = ints[2] + e % c == label ? (REAL)1 : (REAL)0;
    y[e] = 0 <= label && label < ints[3] ? (rk_exp(logprob[e]) - hot) / floats[0] : (REAL)RK_NAN;
}

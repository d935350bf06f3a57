// A tile: gradient of softmax cross-entropy, weight (exp(logprob) - onehot) / total.
//
//   ints: samples, classes of the tile, the first of them, classes, whether there are weights and a total, whether
//         exp(logprob) is left out (gradient of the log-probabilities); floats: number of samples, else the total
//   logprob, y (samples, classes of the tile), labels (samples), weights (samples), total (1)
//
// A thread owns one element; a label out of range gives NaN, a weight of 0 gives 0. Macro: REAL.
// mirror: rpukit/tiled/_mirror/reductions.py::tiled_cross_entropy_grad
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, losses.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_cross_entropy_grad(const i64 *ints, const REAL *floats, const REAL *logprob, const i64 *labels, REAL *y,
                         const REAL *weights, const REAL *total_weight) {
    i64 c = ints[1], e = (i64)blockIdx.x * 256 + threadIdx.x, i = e / c;
    if (i >= ints[0]) return;
    i64 label = labels[i];
    REAL hot = ints[2] + e % c == label ? (REAL)1 : (REAL)0;
    REAL v = (ints[6] ? (REAL)0 : rk_exp(logprob[e])) - hot;
    if (ints[4]) v = weights[i] * v;
    v = 0 <= label && label < ints[3] ? v / (ints[5] ? *total_weight : floats[0]) : (REAL)RK_NAN;
    y[e] = ints[4] && weights[i] == (REAL)0 ? (REAL)0 : v;
}

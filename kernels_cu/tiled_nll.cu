// A tile: mean negative log-likelihood of labels, samples ascending.
//
//   ints: 1, samples, classes, first, last, whether there are weights and a total; floats: number of samples
//   logprob (samples, classes), labels (samples), loss (1), weights (samples), total (1: the divisor)
//
// One thread: the sum is one chain. A label out of range gives NaN, a sample of weight 0 is left out. Macro: REAL.
// mirror: rpukit/tiled/_mirror/reductions.py::tiled_nll
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, losses.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(32)
tiled_nll(const i64 *ints, const REAL *floats, const REAL *logprob, const i64 *labels, REAL *loss,
          const REAL *weights, const REAL *total_weight) {
    if (threadIdx.x || blockIdx.x) return;
    i64 n = ints[1], c = ints[2];
    REAL total = ints[3] ? (REAL)0 : *loss;
    for (i64 i = 0; i < n; i++) {
        i64 k = labels[i];
        REAL p = 0 <= k && k < c ? logprob[i * c + k] : (REAL)RK_NAN;
        if (!ints[5]) total -= p;
        else if (weights[i] != (REAL)0) total = rk_fma(-weights[i], p, total);
    }
    *loss = ints[4] ? total / (ints[6] ? *total_weight : floats[0]) : total;
}

// A tile: mean negative log-likelihood of labels, samples ascending.
//
//   ints: 1, samples, classes, first, last; floats: number of samples
//   logprob (samples, classes), labels (samples), loss (1)
//
// One thread: the sum is one chain. A label out of range gives NaN. Macro: REAL.
// mirror: rpukit/tiled/_mirror/reductions.py::tiled_nll
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, losses.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(32)
tiled_nll(const i64 *ints, const REAL *floats, const REAL *logprob, const i64 *labels, REAL *loss) {
    if (threadIdx.x || blockIdx.x) return;
    i64 n = ints[1], c = ints[2];
    REAL total = ints[3] ? (REAL)0 : *loss;
    for (i64 i = 0; i < n; i++) {
        i64 k = labels[i];
        total -= 0 <= k && k < c ? logprob[i * c + k] : (REAL)RK_NAN;
    }
    *loss = ints[4] ? total / floats[0] : total;
}

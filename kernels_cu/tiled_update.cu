// A tile: step of SGD, of SGD with momentum, or of Adam; or the powers of Adam's decay rates.
//
//   ints: elements, kind (0 SGD, 1 momentum, 2 Adam, 3 powers); floats: rate, decay of the first moment, of the second,
//   epsilon; w, gradient, m, v (elements), powers (2)
//
// One thread an element. Macro: REAL.
// mirror: rpukit/tiled/_mirror/elementwise.py::tiled_update
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Kingma, Ba, ICLR 2015, algorithm 1; docs/semantics/tiled.md, updates.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_update(const i64 *ints, const REAL *floats, REAL *w, const REAL *gradient, REAL *m, REAL *v, const REAL *powers) {
    i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= ints[0]) return;
    const int kind = (int)ints[1];
    const REAL rate = floats[0];
    if (kind == 0) {
        w[i] -= rate * gradient[i];
    } else if (kind == 1) {
        m[i] = rk_fma(floats[1], m[i], gradient[i]);
        w[i] -= rate * m[i];
    } else if (kind == 2) {
        REAL g = gradient[i], first = (REAL)1 - powers[0], second = (REAL)1 - powers[1];
        m[i] = rk_fma(floats[1], m[i], ((REAL)1 - floats[1]) * g);
        v[i] = rk_fma(floats[2], v[i], ((REAL)1 - floats[2]) * g * g);
        w[i] -= rate * (m[i] / first) / (rk_sqrt(v[i] / second) + floats[3]);
    } else {
        w[i] *= floats[1 + i];
    }
}

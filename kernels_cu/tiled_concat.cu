// A tile: tensors side by side along an axis, zeros between them.
//
//   ints: product of the lengths ahead of the axis, inputs, length along it, product of those after it, then the first index and
//         the length of each of seven inputs along the axis; floats: not used
//   a to g, y: packed rectangles; those of length 0 are not read
//
// One thread an element. Macro: REAL.
// mirror: rpukit/tiled/_mirror/elementwise.py::tiled_concat
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, elements.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_concat(const i64 *ints, const REAL *floats, const REAL *a, const REAL *b, const REAL *c, const REAL *d,
             const REAL *e, const REAL *f, const REAL *g, REAL *y) {
    i64 n = ints[2], inner = ints[3], at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= ints[0] * n * inner) return;
    i64 i = at % inner, p = at / inner % n, row = at / inner / n;
    const REAL *parts[7] = {a, b, c, d, e, f, g};
    REAL v = (REAL)0;
#pragma unroll
    for (int k = 0; k < 7; k++) {
        i64 q = p - ints[4 + 2 * k], length = ints[5 + 2 * k];
        if (0 <= q && q < length) v = parts[k][(row * length + q) * inner + i];
    }
    y[at] = v;
}

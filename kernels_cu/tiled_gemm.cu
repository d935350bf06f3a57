// A tile: matrix product, with leading batch axes: Y = alpha op(A) op(B) + beta C, or Relu of it, with up to two of
// them.
//
//   ints: rows, b0, b1, m, n, k, first, last, long, bias, then strides (b0, b1, m, n, k) of a, b, c, y
//   floats: alpha, beta; a, b, c, y: packed rectangles; c is not read without a bias, and is y where bias is 2;
//   Relu follows where last is 2
//
// A thread owns one result: one chain over k, ascending, which continues from y where the tile is not the first of
// its sums. Macro: REAL.
// mirror: rpukit/tiled/_mirror/gemm.py::tiled_gemm
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, products.
#include "rk_real.cuh"

#define SEGMENT 16384

extern "C" __global__ void __launch_bounds__(256)
tiled_gemm(const i64 *ints, const REAL *floats, const REAL *a, const REAL *b, const REAL *c, REAL *y) {
    i64 e = (i64)blockIdx.x * 256 + threadIdx.x, n = ints[4], row = e / n, j = e % n;
    if (row >= ints[0]) return;
    i64 i = row % ints[3], q1 = row / ints[3] % ints[2], q0 = row / ints[3] / ints[2], depth = ints[5];
    const i64 *sa = ints + 10, *sb = ints + 15, *sc = ints + 20, *sy = ints + 25;
    bool first = ints[6], last = ints[7], segments = ints[8];
    a += q0 * sa[0] + q1 * sa[1] + i * sa[2];
    b += q0 * sb[0] + q1 * sb[1] + j * sb[3];
    y += q0 * sy[0] + q1 * sy[1] + i * sy[2] + j;
    const REAL *held = ints[9] == 2 ? y : ints[9] ? c + q0 * sc[0] + q1 * sc[1] + i * sc[2] + j * sc[3] : nullptr;
    REAL total = first ? (REAL)0 : *y;
    for (i64 k0 = 0; k0 < depth; k0 += SEGMENT) {
        i64 k1 = segments && k0 + SEGMENT < depth ? k0 + SEGMENT : depth;
        REAL part = segments ? (REAL)0 : total;
        for (i64 k = k0; k < k1; k++) part = rk_fma(a[k * sa[4]], b[k * sb[4]], part);
        total = !segments || (first && k0 == 0) ? part : total + part;
        if (!segments) break;
    }
    if (last) {
        total = floats[0] * total;
        if (held) total = rk_fma(floats[1], *held, total);
        if (ints[7] == 2) total = total > (REAL)0 ? total : (REAL)0;
    }
    *y = total;
}

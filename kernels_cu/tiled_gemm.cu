// A tile: matrix product, with leading batch axes: Y = alpha op(A) op(B) + beta C, or Relu of it, with up to two of
// them.
//
//   ints: rows, b0, b1, m, n, k, first, last, long, bias, then strides (b0, b1, m, n, k) of a, b, c, y
//   floats: alpha, beta; a, b, c, y: packed rectangles; c is not read without a bias, and is y where bias is 2;
//   Relu follows where last is 2
//
// A result is one chain over k, ascending, which continues from y where the tile is not the first of its sums. A thread
// owns one result, or with TILE a block owns TILE x 64 results of one product, with k at most a segment (tiled_stack.cuh).
// Macros: REAL, TILE (0, 8, 16, 32 or 64).
// mirror: rpukit/tiled/_mirror/gemm.py::tiled_gemm
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: TILE=8
// check: TILE=32
// check: TILE=64
// check: TILE=64 REAL=double
// source: docs/semantics/tiled.md, products.
#include "rk_real.cuh"

#ifndef TILE
#define TILE 0
#endif
#define SEGMENT 16384
#define THREADS (TILE ? 128 : 256)

// A result at its end: its sum, and what is added to it.
__device__ __forceinline__ REAL finished(const i64 *ints, const REAL *floats, REAL total, const REAL *y, const REAL *c) {
    if (!ints[7]) return total;
    total = floats[0] * total;
    if (ints[9]) total = rk_fma(floats[1], ints[9] == 2 ? *y : *c, total);
    return ints[7] == 2 ? total > (REAL)0 ? total : (REAL)0 : total;
}

#if TILE
#include "tiled_stack.cuh"
#endif

extern "C" __global__ void __launch_bounds__(THREADS, TILE ? 3 : 4)
tiled_gemm(const i64 *ints, const REAL *floats, const REAL *a, const REAL *b, const REAL *c, REAL *y) {
    const i64 n = ints[4], depth = ints[5], *sa = ints + 10, *sb = ints + 15, *sc = ints + 20, *sy = ints + 25;
    const bool first = ints[6], segments = ints[8];
#if TILE
    const i64 wide = (n + 63) / 64, high = (ints[3] + TILE - 1) / TILE;
    const i64 q = blockIdx.x / (wide * high), q1 = q % ints[2], q0 = q / ints[2];
    const int row0 = (int)(blockIdx.x / wide % high) * TILE, col0 = (int)(blockIdx.x % wide) * 64;
    Stack stack;
    y += q0 * sy[0] + q1 * sy[1];
    if (!first && !segments) stack.each(row0, ints[3], col0, n, [&](REAL &sum, i64 i, i64 j) { sum = y[i * sy[2] + j]; });
    stack.add(Lines{a + q0 * sa[0] + q1 * sa[1], sa[2], sa[4], row0, (int)ints[3]},
              Lines{b + q0 * sb[0] + q1 * sb[1], sb[3], sb[4], col0, (int)n}, (int)depth);
    stack.each(row0, ints[3], col0, n, [&](REAL &sum, i64 i, i64 j) {
        REAL *own = y + i * sy[2] + j;
        const REAL *added = ints[9] ? c + q0 * sc[0] + q1 * sc[1] + i * sc[2] + j * sc[3] : nullptr;
        *own = finished(ints, floats, segments && !first ? *own + sum : sum, own, added);
    });
#else
    i64 e = (i64)blockIdx.x * 256 + threadIdx.x, row = e / n, j = e % n;
    if (row >= ints[0]) return;
    i64 i = row % ints[3], q1 = row / ints[3] % ints[2], q0 = row / ints[3] / ints[2];
    a += q0 * sa[0] + q1 * sa[1] + i * sa[2];
    b += q0 * sb[0] + q1 * sb[1] + j * sb[3];
    y += q0 * sy[0] + q1 * sy[1] + i * sy[2] + j;
    REAL total = first ? (REAL)0 : *y;
    for (i64 k0 = 0; k0 < depth; k0 += SEGMENT) {
        i64 k1 = segments && k0 + SEGMENT < depth ? k0 + SEGMENT : depth;
        REAL part = segments ? (REAL)0 : total;
        for (i64 k = k0; k < k1; k++) part = rk_fma(a[k * sa[4]], b[k * sb[4]], part);
        total = !segments || (first && k0 == 0) ? part : total + part;
        if (!segments) break;
    }
    *y = finished(ints, floats, total, y, ints[9] ? c + q0 * sc[0] + q1 * sc[1] + i * sc[2] + j * sc[3] : nullptr);
#endif
}

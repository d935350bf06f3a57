// A tile of a sum over any axes: of elements, of squares of differences, or of products with normalised elements.
//
//   ints: results, kind (0 sum, 1 mean, 2 one over the deviation, 3 products, 4 variance), first, last, lengths of four
//         axes that stay and four that are summed, strides of a, b, c, d, y along these eight
//   floats: number of elements, epsilon; a, b, c, d, y: packed rectangles
//
// A thread owns one result: the innermost axis is summed first, then the sums of its rows, ascending. Macro: REAL.
// mirror: rpukit/tiled/_mirror/reductions.py::tiled_reduce
// op: rpukit.tiled.run.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/tiled.md, reductions.
#include "rk_real.cuh"

__device__ __forceinline__ i64 place(const i64 *steps, const i64 *at) {
    return at[0] * steps[0] + at[1] * steps[1] + at[2] * steps[2] + at[3] * steps[3];
}

__device__ __forceinline__ REAL added(int kind, REAL s, REAL a, const REAL *b, const REAL *c, const REAL *d) {
    if (kind < 2) return s + a;
    if (kind == 3) return rk_fma(a, (*b - *c) * *d, s);
    REAL v = a - *b;
    return rk_fma(v, v, s);
}

extern "C" __global__ void __launch_bounds__(128)
tiled_reduce(const i64 *ints, const REAL *floats, const REAL *a, const REAL *b, const REAL *c, const REAL *d, REAL *y) {
    i64 row = (i64)blockIdx.x * 128 + threadIdx.x;
    if (row >= ints[0]) return;
    const i64 *f = ints + 4, *n = ints + 8, *steps = ints + 12;
    const int kind = (int)ints[1];
    i64 at[4] = {row / (f[1] * f[2] * f[3]), row / (f[2] * f[3]) % f[1], row / f[3] % f[2], row % f[3]};
    a += place(steps, at), b += place(steps + 8, at), c += place(steps + 16, at), d += place(steps + 24, at);
    y += place(steps + 32, at);
    REAL total = ints[2] ? (REAL)0 : *y;
    for (i64 j = 0; j < n[0] * n[1] * n[2]; j++) {
        i64 in[4] = {j / (n[1] * n[2]), j / n[2] % n[1], j % n[2], 0};
        i64 pa = place(steps + 4, in), pb = place(steps + 12, in);
        i64 pc = place(steps + 20, in), pd = place(steps + 28, in);
        REAL part = 0;
        for (i64 i = 0; i < n[3]; i++)
            part = added(kind, part, a[pa + i * steps[7]], b + pb + i * steps[15], c + pc + i * steps[23],
                         d + pd + i * steps[31]);
        total += part;
    }
    if (ints[3] && kind != 0 && kind != 3) {
        total /= floats[0];
        if (kind == 2) total = (REAL)1 / rk_sqrt(total + floats[1]);
    }
    *y = total;
}

// A tile: elementwise op of up to seven inputs, with broadcasting.
//
//   ints: rows, kind, lengths of four axes, strides of seven inputs and y along them; floats: constants, if any
//   a to g, y: packed rectangles; those that the kind does not have are not read
//
// One thread an element. Macros: KIND (see tiled_functions.cuh), REAL, FLAT: where all that moves lies as y does, the set
// of inputs that do move, a bit each; else -1.
// mirror: rpukit/tiled/_mirror/elementwise.py::tiled_map
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: KIND=8
// check: KIND=9
// check: KIND=10 REAL=double
// check: KIND=16
// check: KIND=7 FLAT=3
// check: KIND=17
// check: KIND=20
// check: KIND=23 REAL=double
// check: KIND=25
// check: KIND=29
// check: KIND=30
// source: docs/semantics/tiled.md, elementwise ops.
#include "tiled_functions.cuh"

#ifndef KIND
#define KIND 0
#endif
#ifndef FLAT
#define FLAT -1
#endif

struct Inputs { const REAL *b, *c, *d, *e, *f, *g; };

// The function of KIND; an input that it does not have is not read.
__device__ __forceinline__ REAL function(REAL a, const Inputs &in, const REAL *s) {
    constexpr int n = inputs_of(KIND);
    constexpr bool one = KIND == 5 || KIND == 14 || KIND == 16 || KIND == 18 || KIND == 27;
    constexpr bool two = KIND == 17 || KIND == 19 || KIND == 25 || KIND == 26 || KIND == 28;
    REAL b = n > 1 ? *in.b : (REAL)0, c = n > 2 ? *in.c : (REAL)0, d = n > 3 ? *in.d : (REAL)0;
    REAL e = n > 4 ? *in.e : (REAL)0, f = n > 5 ? *in.f : (REAL)0, g = n > 6 ? *in.g : (REAL)0;
    return pointwise<KIND>(a, b, c, d, e, f, g, one || two ? s[0] : (REAL)1, two ? s[1] : (REAL)0);
}

extern "C" __global__ void __launch_bounds__(256)
tiled_map(const i64 *ints, const REAL *floats, const REAL *a, const REAL *b, const REAL *c, const REAL *d,
          const REAL *e, const REAL *f, const REAL *g, REAL *y) {
#if FLAT >= 0
    const u32 at = blockIdx.x * 256 + threadIdx.x;
    if (at >= (u32)(ints[0] * ints[5])) return;
    u32 p[7];
    for (int k = 0; k < 7; k++) p[k] = FLAT >> k & 1 ? at : 0u;
    Inputs in = {b + p[1], c + p[2], d + p[3], e + p[4], f + p[5], g + p[6]};
    y[at] = function(a[p[0]], in, floats);
#else
    i64 n1 = ints[3], n2 = ints[4], n3 = ints[5], at = (i64)blockIdx.x * 256 + threadIdx.x, row = at / n3;
    if (row >= ints[0]) return;
    const i64 i[4] = {row / (n1 * n2), row / n2 % n1, row % n2, at % n3}, *s = ints + 6;
    i64 p[8];
    for (int k = 0; k < 8; k++, s += 4) p[k] = i[0] * s[0] + i[1] * s[1] + i[2] * s[2] + i[3] * s[3];
    Inputs in = {b + p[1], c + p[2], d + p[3], e + p[4], f + p[5], g + p[6]};
    y[p[7]] = function(a[p[0]], in, floats);
#endif
}

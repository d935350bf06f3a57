// A tile: fused chain of elementwise steps, of up to eight inputs and four results.
//
//   ints: rows, length of the chain, lengths of four axes, strides of eight inputs and four results along them,
//         values that the results are, the chain; floats: constants of the chain
//   a to h, y to w: packed rectangles; those that the chain does not have are not read or written
//
// One thread an element. The chain is a list of steps: function, number of operands, value that it makes, operands.
// Values by number: 0 to 7 inputs, 8 to 15 constants, 16 to 31 results of steps; they live in registers, since the
// chain is known when the kernel is compiled. Macros: CHAIN, its steps; RESULTS, the values that are stored; INPUTS and
// CONSTANTS, their numbers; REAL; FLAT: where all that moves lies as y does, the set of inputs that do move, a bit each; else -1.
// mirror: rpukit/tiled/_mirror/elementwise.py::tiled_fused
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: CHAIN=12,1,16,0,3,2,17,0,16 RESULTS=17,16 FLAT=1
// check: CHAIN=15,5,16,0,1,2,3,4,17,3,17,16,8,9,1,2,18,17,5 RESULTS=18 INPUTS=6 CONSTANTS=2
// source: docs/semantics/tiled.md, fused chains.
#include "tiled_functions.cuh"

#ifndef CHAIN
#define CHAIN 6,1,16,0
#endif
#ifndef RESULTS
#define RESULTS 16
#endif
#ifndef INPUTS
#define INPUTS 1
#endif
#ifndef CONSTANTS
#define CONSTANTS 0
#endif
#ifndef FLAT
#define FLAT -1
#endif

struct Chain {
    static constexpr int step[] = {CHAIN}, result[] = {RESULTS};
    static constexpr int length = sizeof(step) / sizeof(int), results = sizeof(result) / sizeof(int);
    // Operand k of the step at a place; 0, the first input, where it has fewer.
    __device__ static constexpr int operand(int at, int k) { return k < step[at + 1] ? step[at + 3 + k] : 0; }
};

template <int AT>
__device__ __forceinline__ void run(REAL *v) {
    if constexpr (AT < Chain::length) {
        constexpr int kind = Chain::step[AT], made = Chain::step[AT + 2], n = inputs_of(kind);
        constexpr int a = Chain::operand(AT, 0), b = Chain::operand(AT, 1), c = Chain::operand(AT, 2);
        constexpr int d = Chain::operand(AT, 3), e = Chain::operand(AT, 4), f = Chain::operand(AT, 5);
        constexpr int g = Chain::operand(AT, 6), by = Chain::operand(AT, n), to = Chain::operand(AT, n + 1);
        v[made] = pointwise<kind>(v[a], v[b], v[c], v[d], v[e], v[f], v[g], v[by], v[to]);
        run<AT + 3 + Chain::step[AT + 1]>(v);
    }
}

template <int K>
__device__ __forceinline__ void store(const REAL *v, REAL *const *to, const i64 *at) {
    if constexpr (K < Chain::results) {
        constexpr int value = Chain::result[K];
        to[K][at[K]] = v[value];
        store<K + 1>(v, to, at);
    }
}

extern "C" __global__ void __launch_bounds__(256)
tiled_fused(const i64 *ints, const REAL *floats, const REAL *a, const REAL *b, const REAL *c, const REAL *d,
            const REAL *e, const REAL *f, const REAL *g, const REAL *h, REAL *y, REAL *z, REAL *u, REAL *w) {
    const REAL *const from[8] = {a, b, c, d, e, f, g, h};
    REAL *const to[4] = {y, z, u, w};
    REAL v[32];
    const u32 thread = blockIdx.x * 256 + threadIdx.x;  // a launch has fewer than 2^32
    if (thread >= (u32)(ints[0] * ints[5])) return;
    i64 p[12];
#if FLAT >= 0
#pragma unroll
    for (int k = 0; k < 12; k++) p[k] = k > 7 || FLAT >> k & 1 ? thread : 0;
#else
    const u32 n1 = (u32)ints[3], n2 = (u32)ints[4], n3 = (u32)ints[5], row = thread / n3, plane = row / n2;
    const i64 i[4] = {plane / n1, plane % n1, row % n2, thread % n3}, *s = ints + 6;
#pragma unroll
    for (int k = 0; k < 12; k++)
        if (k < INPUTS || (k > 7 && k < 8 + Chain::results))
            p[k] = i[0] * s[4 * k] + i[1] * s[4 * k + 1] + i[2] * s[4 * k + 2] + i[3] * s[4 * k + 3];
#endif
#pragma unroll
    for (int k = 0; k < INPUTS; k++) v[k] = from[k][p[k]];
#pragma unroll
    for (int k = 0; k < 8; k++) v[8 + k] = k < CONSTANTS ? floats[k] : (REAL)0;
    run<0>(v);
    store<0>(v, to, p + 8);
}

// Fill an array with random draws: element i is draw number `draw` of (op, index i, sample).
//
//   out (n)   KIND 0: uint32 words, 1: float32 uniforms in (0, 1), 2: float32 standard normals
//
// One thread an element. Macros: KIND, OUT (type of out).
// mirror: rpukit/elementwise/_mirror.py::random_fill
// op: rpukit.elementwise.random_fill
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: KIND=0 OUT=u32
// check: KIND=1
// source: Salmon et al., SC 2011 (Philox4x32-10); the quantile: tools/fit_math.py.
#include "rk_philox.cuh"

#ifndef KIND
#define KIND 2
#endif
#ifndef OUT
#define OUT float
#endif

extern "C" __global__ void __launch_bounds__(256)
random_fill(u64 n, u32 op, u64 sample, u32 draw, OUT *out, u32 key0, u32 key1) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    u32 word = rk_word(make_uint2(key0, key1), op, i, sample, draw);
#if KIND == 0
    out[i] = word;
#elif KIND == 1
    out[i] = rk_uniform(word);
#else
    out[i] = rk_normal(word);
#endif
}

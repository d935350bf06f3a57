// Apply one of our elementary functions to every element: y = FUNC(x).
//
//   x, y (n)   float32
//
// One thread an element. Macro: FUNC (a function of rk_math.cuh).
// mirror: rpukit/elementwise/_mirror.py::math_map
// op: rpukit.elementwise.math_map
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: FUNC=rk_log
// check: FUNC=rk_log1p
// check: FUNC=rk_expm1
// check: FUNC=rk_tanh
// check: FUNC=rk_normal_quantile
// source: docs/math.md.
#include "rk_math.cuh"

#ifndef FUNC
#define FUNC rk_exp
#endif

extern "C" __global__ void __launch_bounds__(256)
math_map(u64 n, const float *x, float *y) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = FUNC(x[i]);
}

// Apply an elementary function to every element: out = FUNC(x), or out = FUNC(x, y).
//
//   x, y, out (n)   REAL; y is not read where ARGUMENTS is 1
//
// One thread an element. Macros: FUNC (a function of rk_math.cuh or rk_special.cuh), REAL (float or
// double), ARGUMENTS (1 or 2).
// mirror: rpukit/elementwise/_mirror.py::math_map
// op: rpukit.elementwise.math_map
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: FUNC=rk_log
// check: FUNC=rk_log1p
// check: FUNC=rk_expm1
// check: FUNC=rk_tanh
// check: FUNC=rk_erf
// check: FUNC=rk_lgamma
// check: FUNC=rk_normal_quantile
// check: FUNC=rk_pow ARGUMENTS=2
// check: FUNC=rk_exp REAL=double
// check: FUNC=rk_lgamma REAL=double
// check: FUNC=rk_normal_quantile REAL=double
// check: FUNC=rk_pow ARGUMENTS=2 REAL=double
// source: docs/math.md.
#include "rk_special64.cuh"

#ifndef FUNC
#define FUNC rk_exp
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef ARGUMENTS
#define ARGUMENTS 1
#endif

extern "C" __global__ void __launch_bounds__(256)
math_map(u64 n, const REAL *x, const REAL *y, REAL *out) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
#if ARGUMENTS == 2
    out[i] = FUNC(x[i], y[i]);
#else
    out[i] = FUNC(x[i]);
#endif
}

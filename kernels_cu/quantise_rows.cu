// Quantise each sample to a number of steps set by its largest value.
//
// With m = max |v| of a sample and w = m / half (1 where m is 0):
//   out = clip(rint(v / w [+ (U - 1/2)]), -half, half) w
//
//   v, out (n_batch, n_line)   REAL, all finite
//   status (1)                 not zero: do nothing
//
// A block is a sample: all threads find the maximum, which has no order, then take lines in turn.
// Draws where STOCHASTIC: op as given (5 of x, 6 of d), index = line, sample, draw 65532.
// Macros: STOCHASTIC, REAL.
// mirror: rpukit/analog/_mirror/mixed_precision.py::quantise_rows
// op: rpukit.analog.arrays.mixed_precision_ops.quantise_rows
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: STOCHASTIC=1
// check: REAL=double
// source: Nandakumar et al., Front. Neurosci. 14:406 (2020), digital accumulation of quantised gradients.
#include "rk_real.cuh"
#include "rk_philox.cuh"

#ifndef STOCHASTIC
#define STOCHASTIC 0
#endif
#define THREADS 256
#define ROUNDING_DRAW 65532u

extern "C" __global__ void __launch_bounds__(THREADS)
quantise_rows(int n_line, REAL half, int op, u64 first_sample, const REAL *v, REAL *out, const int *status,
              u32 key0, u32 key1) {
    __shared__ REAL warp_max[THREADS / 32];
    if (*status) return;  // the same for every thread of the launch
    const REAL *row = v + (u64)blockIdx.x * n_line;
    REAL m = 0.0f;
    for (int i = threadIdx.x; i < n_line; i += THREADS) m = rk_max(m, rk_abs(row[i]));
    for (int lane = 16; lane; lane >>= 1) m = rk_max(m, __shfl_xor_sync(0xffffffffu, m, lane));
    if ((threadIdx.x & 31) == 0) warp_max[threadIdx.x >> 5] = m;
    __syncthreads();
    for (int warp = 0; warp < THREADS / 32; ++warp) m = rk_max(m, warp_max[warp]);
    REAL width = m > 0.0f ? m / half : (REAL)1;
    if (!(width > 0.0f)) width = 1.0f;  // the quotient of a subnormal
    for (int i = threadIdx.x; i < n_line; i += THREADS) {
        REAL q = row[i] / width;
#if STOCHASTIC
        q += (REAL)rk_uniform(rk_word(make_uint2(key0, key1), (u32)op, i, first_sample + blockIdx.x, ROUNDING_DRAW)) - (REAL)0.5;
#endif
        out[(u64)blockIdx.x * n_line + i] = rk_hold(rk_min(rk_max(rk_rint(q), -half), half) * width);
    }
}

// Gradient of log-probabilities with respect to a slice of the logits.
//
//   out[s, first + c] = slope[s] ((first + c == target[s]) - exp((z[s, c] - m_s) - l_s)),  (m_s, l_s) = normaliser[s]
//   0 in rows with a negative target, NaN in rows with one from n_vocab on
//
//   z (n_row, n_column), normaliser (n_row, 2), slope (n_row) REAL, target (n_row) TARGET
//   out (n_row, n_vocab) RESULT: REAL, or u16: rounded to bfloat16 (HALF: float16)
//
// One thread an element.
// Macros: REAL (float or double), RESULT, TARGET (int or i64), HALF.
// mirror: rpukit/gemm/_mirror/logprob.py::logprob_gradient
// op: rpukit.gemm.logprob.logprob_gradient
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double RESULT=double TARGET=i64
// check: RESULT=u16
// check: RESULT=u16 HALF=1
// source: docs/semantics/gemm.md, section 3.
#include "rk_logprob.cuh"
#include "rk_mma.cuh"

#ifndef REAL
#define REAL float
#endif
#ifndef RESULT
#define RESULT float
#endif
#ifndef TARGET
#define TARGET int
#endif

__device__ __forceinline__ void give(float *out, float v) { *out = v; }
__device__ __forceinline__ void give(double *out, double v) { *out = v; }
__device__ __forceinline__ void give(u16 *out, float v) { *out = rk_round16(v); }

extern "C" __global__ void __launch_bounds__(256)
logprob_gradient(int n_row, int n_column, i64 first, i64 n_vocab, const REAL *z, const REAL *normaliser, const REAL *slope,
                 const TARGET *target, RESULT *out) {
    u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    if (at >= (u64)n_row * n_column) return;
    u64 row = at / n_column;
    i64 column = first + (i64)(at % n_column), wanted = target[row];
    REAL p = rk_exp((z[at] - normaliser[2 * row]) - normaliser[2 * row + 1]);
    REAL v = slope[row] * ((column == wanted ? REAL(1) : REAL(0)) - p);
    if (wanted >= n_vocab) v = rk_lowest(p) - rk_lowest(p);
    give(out + row * n_vocab + column, wanted < 0 ? REAL(0) : v);
}

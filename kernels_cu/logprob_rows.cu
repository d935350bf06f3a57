// Log-softmax over a vocabulary: combine the blocks into one token's log-probability a row.
//
//   m = max peak[s, b],  l = log(sum over b of mass[s, b] exp(peak[s, b] - m)),  normaliser[s] = (m, l)
//   logprob[s] = (chosen[s] - m) - l;  0 for a negative target, NaN for one from n_vocab on
//
//   peak, mass (n_row, n_block), chosen (n_row), normaliser (n_row, 2), logprob (n_row) REAL, target (n_row) TARGET
//
// A warp a row. Sum: lane i makes one chain of fma over the blocks i, i + 32, ...; the lanes are added as a
// binary tree over their bits 4, 3, 2, 1, 0.
// Macros: REAL (float or double), TARGET (int or i64).
// mirror: rpukit/gemm/_mirror/logprob.py::logprob_rows
// op: rpukit.gemm.logprob.logprob_rows
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double TARGET=i64
// source: docs/semantics/gemm.md, section 3.
#include "rk_logprob.cuh"

#ifndef REAL
#define REAL float
#endif
#ifndef TARGET
#define TARGET int
#endif

extern "C" __global__ void __launch_bounds__(256)
logprob_rows(int n_row, int n_block, i64 n_vocab, const REAL *peak, const REAL *mass, const REAL *chosen, const TARGET *target,
             REAL *normaliser, REAL *logprob) {
    int lane = threadIdx.x % 32, row = blockIdx.x * 8 + threadIdx.x / 32;
    bool inside = row < n_row;
    u64 first = inside ? (u64)row * n_block : 0;
    REAL top = rk_lowest(REAL(0)), sum = 0;
    for (int b = lane; b < n_block; b += 32) top = peak[first + b] > top ? peak[first + b] : top;
#pragma unroll
    for (int x = 16; x; x /= 2) {
        REAL other = __shfl_xor_sync(~0u, top, x);
        top = other > top ? other : top;
    }
    REAL anchor = rk_anchor(top);
    for (int b = lane; b < n_block; b += 32) sum = rk_fma(mass[first + b], rk_exp(peak[first + b] - anchor), sum);
#pragma unroll
    for (int x = 16; x; x /= 2) sum += __shfl_xor_sync(~0u, sum, x);
    if (lane == 0 && inside) {
        REAL size = rk_log(sum);
        i64 wanted = target[row];
        normaliser[2 * (u64)row] = top;
        normaliser[2 * (u64)row + 1] = size;
        logprob[row] = wanted < 0 ? REAL(0) : wanted < n_vocab ? (chosen[row] - top) - size : rk_lowest(sum) - rk_lowest(sum);
    }
}

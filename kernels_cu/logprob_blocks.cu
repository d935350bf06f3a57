// Log-softmax over a vocabulary: maximum and sum of each block of 64 logits.
//
//   peak[s, b] = max z[s, c],  mass[s, b] = sum exp(z[s, c] - peak)       over the columns c of block b
//   chosen[s] = z[s, target[s]]                                          where a column of the slice is it
//
//   z (n_row, n_column) REAL: the slice of the logits that begins at column 64 first_block of all
//   peak, mass (n_row, n_block) REAL, target (n_row) TARGET, chosen (n_row) REAL; the slice is whole blocks but
//   for the end of the vocabulary
//
// Four lanes a block, a warp eight neighbouring blocks. Sum: a binary tree over the bits 3, 0, 4, 5, 1, 2 of the
// column's number in its block (rk_logprob.cuh); columns beyond the end are -infinity.
// Macros: REAL (float or double), TARGET (int or i64).
// mirror: rpukit/gemm/_mirror/logprob.py::logprob_blocks
// op: rpukit.gemm.logprob.logprob_blocks
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
logprob_blocks(int n_row, int n_column, int first_block, int n_block, const REAL *z, const TARGET *target, REAL *peak, REAL *mass,
               REAL *chosen) {
    int lane = threadIdx.x % 32, q = lane % 4, eights = (n_column + 8 * RK_BLOCK - 1) / (8 * RK_BLOCK);
    u64 warp = (u64)blockIdx.x * 8 + threadIdx.x / 32;
    bool inside = warp < (u64)n_row * eights;
    u64 row = inside ? warp / eights : 0;
    int block = inside ? (int)(warp % eights) * 8 + lane / 4 : 0, left = inside ? n_column - block * RK_BLOCK : 0;
    const REAL *from = z + row * n_column + block * RK_BLOCK;
    i64 wanted = (i64)target[row] - (i64)(first_block + block) * RK_BLOCK;
    REAL v[8][2], top, sum;
#pragma unroll
    for (int x = 0; x < 16; ++x) {
        int c = x / 2 * 8 + 2 * q + x % 2;
        v[x / 2][x % 2] = c < left ? from[c] : rk_lowest(REAL(0));
        if (c < left && c == wanted) chosen[row] = v[x / 2][x % 2];
    }
    rk_logprob_block(v, top, sum);
    if (q == 0 && left > 0) {
        peak[row * n_block + first_block + block] = top;
        mass[row * n_block + first_block + block] = sum;
    }
}

// Copy rows of 16-bit words, which may begin anywhere, to rows that begin at multiples of 16 bytes.
//
//   out_ij = x_ij for j < n_column, 0 for the others below width
//
//   x rows of n_column words, every ld words; out (n_row, width), a width of at least n_column, a multiple of 8    u16
//   y, out_2: a second matrix of its own sizes, or none with n_row_2 = 0
//
// A thread makes chunks of 16 bytes, one after another. It reads a chunk at once where that is aligned, else words of 4 bytes at their own
// alignment, which it shifts; a word that reaches beyond the row is read by halves, so that nothing outside the matrix is touched.
// mirror: rpukit/gemm/_mirror/lines.py::align_rows
// op: rpukit.gemm.lines.align_rows
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: docs/gemm.md.
#include "rk_early.cuh"
#include "rk_types.cuh"
typedef unsigned short u16;
#define THREADS 256

// Two words of a row, at j and j + 1, of which j may be -1 and j + 1 may be n_column.
__device__ __forceinline__ u32 pair(const u16 *row, int j, int n_column) {
    if (j >= 0 && j + 1 < n_column) return *(const u32 *)(row + j);
    u32 low = j >= 0 && j < n_column ? row[j] : 0, high = j + 1 >= 0 && j + 1 < n_column ? row[j + 1] : 0;
    return low | high << 16;
}

__device__ __forceinline__ uint4 chunk(const u16 *row, int j, int n_column) {
    if (((u64)(row + j) & 15) == 0 && j + 8 <= n_column) return *(const uint4 *)(row + j);
    u32 odd = (u32)((u64)row >> 1 & 1), w[5];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = pair(row, j - (int)odd + 2 * i, n_column);
    w[4] = odd ? pair(row, j + 7, n_column) : 0;
    if (odd)
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = w[i] >> 16 | w[i + 1] << 16;
    return make_uint4(w[0], w[1], w[2], w[3]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
align_rows(int n_row, int n_column, int ld, int width, int n_row_2, int n_column_2, int ld_2, int width_2, const u16 *x, u16 *out,
           const u16 *y, u16 *out_2) {
    u32 units = (u32)width / 8, units_2 = (u32)width_2 / 8;
    u32 first = n_row * units, all = first + n_row_2 * units_2;
    rk_wait_for_earlier();
    rk_let_later_begin();
    for (u32 at = blockIdx.x * THREADS + threadIdx.x; at < all; at += gridDim.x * THREADS) {
        bool second = at >= first;
        u32 place = second ? at - first : at, each = second ? units_2 : units, row = place / each, unit = place % each;
        uint4 v = chunk((second ? y + (u64)row * ld_2 : x + (u64)row * ld), unit * 8, second ? n_column_2 : n_column);
        *(uint4 *)((second ? out_2 : out) + (u64)place * 8) = v;
    }
}

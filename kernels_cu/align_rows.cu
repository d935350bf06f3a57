// Copy rows of 16-bit words, which may begin anywhere, to rows that begin at multiples of 16 bytes.
//
//   out_ij = x_ij for j < n_column, 0 for the others below width
//
//   x rows of n_column words, every ld words; out (n_row, width), a width of at least n_column, a multiple of 8    u16
//   y, out_2: a second matrix of its own sizes, or none with n_row_2 = 0
//
// A thread makes chunks of 16 bytes, one after another, from the one or two aligned lines of 16 bytes that hold their words. What else
// is in these lines is not used; it may lie outside the matrix.
// mirror: rpukit/gemm/_mirror/lines.py::align_rows
// op: rpukit.gemm.lines.align_rows
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: docs/gemm.md.
#include "gemm_loose.cuh"
#include "rk_early.cuh"
#define THREADS 256
#define STAYS (40 << 16)  // so many chunks, 42 MB, stay in L2 for the product

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
        const u16 *from = (second ? y + (u64)row * ld_2 : x + (u64)row * ld) + unit * 8;
        int n_byte = 2 * max(0, min((second ? n_column_2 : n_column) - (int)unit * 8, 8));
        Loose words;
        words.read(from, n_byte, all <= STAYS);
        *(uint4 *)((second ? out_2 : out) + (u64)place * 8) = words.tight(from, n_byte);
    }
}

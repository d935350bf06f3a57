// Copy rows of 16-bit words, which may begin anywhere, to rows that begin at multiples of 16 bytes.
//
//   out_ij = x_ij for j < n_column, 0 for the others below width
//
//   x rows of n_column words, every ld words; out (n_row, width), a width of at least n_column, a multiple of 8    u16
//   y, out_2: a second matrix of its own sizes, or none with n_row_2 = 0
//
// A thread makes chunks of 16 bytes, one after another, from the aligned one or two in memory that hold their words. Where these reach
// beyond the matrix, at its begin and its end, it reads single words, so that nothing outside is touched.
// mirror: rpukit/gemm/_mirror/lines.py::align_rows
// op: rpukit.gemm.lines.align_rows
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: docs/gemm.md.
#include "rk_early.cuh"
#include "rk_types.cuh"
typedef unsigned short u16;
#define THREADS 256
#define STAYS (40 << 16)  // chunks that stay in L2 for the product

// Bytes `o` to o + 15, o even, of two neighbouring chunks.
__device__ __forceinline__ uint4 shifted(uint4 first, uint4 next, u32 o) {
    u32 w[8] = {first.x, first.y, first.z, first.w, next.x, next.y, next.z, next.w};
#pragma unroll
    for (int i = 0; i < 7; ++i) w[i] = o & 4 ? w[i + 1] : w[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = o & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = (u32)((w[i] | (u64)w[i + 1] << 32) >> (o & 2) * 8);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

// A chunk in memory. `once`: it should not take a place in L2 from what is written.
__device__ __forceinline__ uint4 load(const uint4 *at, bool once) { return once ? __ldcs(at) : *at; }

// The `left` words of a row from `from` on, of which 8 make a chunk; 0 in the place of others. The matrix lies between `begin` and `end`.
__device__ __forceinline__ uint4 chunk(const u16 *from, int left, const u16 *begin, const u16 *end, bool once) {
    u32 o = (u32)(u64)from & 15;
    const uint4 *at = (const uint4 *)((u64)from - o);
    u32 w[4];
    if ((const u16 *)at >= begin && (const u16 *)(at + 1 + (o > 0)) <= end) {
        uint4 v = load(at, once);
        if (o) v = shifted(v, load(at + 1, once), o);
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = (2 * i < left ? from[2 * i] : 0) | (u32)(2 * i + 1 < left ? from[2 * i + 1] : 0) << 16;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] &= 2 * i + 1 < left ? ~0u : 2 * i < left ? 0xffffu : 0;
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
        const u16 *begin = second ? y : x;
        int columns = second ? n_column_2 : n_column, step = second ? ld_2 : ld, rows = second ? n_row_2 : n_row, j = unit * 8;
        uint4 v = chunk(begin + (u64)row * step + j, columns - j, begin, begin + (u64)(rows - 1) * step + columns, all <= STAYS);
        *(uint4 *)((second ? out_2 : out) + (u64)place * 8) = v;
    }
}

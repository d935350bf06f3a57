// A warp's copies of a factor whose rows begin at odd elements: aligned words of 16 bytes, shifted in registers.
#pragma once
#include "gemm_warps.cuh"

// The 16 bytes from byte `shift` (even, below 16) on, of 32.
__device__ __forceinline__ uint4 rk_shifted(uint4 v, uint4 w, u32 shift) {
    bool two = shift & 8, one = shift & 4;
    u32 a = two ? v.z : v.x, b = two ? v.w : v.y, c = two ? w.x : v.z, d = two ? w.y : v.w, e = two ? w.z : w.x, f = two ? w.w : w.y;
    a = one ? b : a, b = one ? c : b, c = one ? d : c, d = one ? e : d, e = one ? f : e;
    if (shift & 2) a = a >> 16 | b << 16, b = b >> 16 | c << 16, c = c >> 16 | d << 16, d = d >> 16 | e << 16;
    return make_uint4(a, b, c, d);
}

// As Feed (gemm_feed.cuh), of a warp that copies whole stages. Words that begin before the matrix or end behind it are read by elements.
template <int LINES, int MN> struct OddFeed {
    static constexpr int lanes = (MN ? LINES : BK) / 8, each = 32 / lanes, count = (MN ? BK : LINES) / each;  // of a row; rows a turn; turns
    static constexpr int together = count < 4 ? count : 4;                                                    // turns on their way
    const u16 *from;
    const char *begin, *end;
    u64 stride;
    int row, at, n_line, line0;

    // `n_r`: terms of the sum; `r`: the first one.
    __device__ __forceinline__ OddFeed(const u16 *m, int ld, int line0, int n_line, int r, int n_r)
        : begin((const char *)m), stride(ld), n_line(n_line), line0(line0) {
        int lane = threadIdx.x % 32;
        row = lane / lanes, at = lane % lanes * 8;
        end = (const char *)(m + (u64)((MN ? n_r : n_line) - 1) * ld + (MN ? n_line : n_r));
        from = m + (MN ? (u64)(r + row) * ld + line0 + at : (u64)(line0 + row) * ld + r + at);
    }
    __device__ __forceinline__ void skip(int r) { from += MN ? r * stride : r; }
    // Elements that exist of turn u, if `left` terms of the sum are there.
    __device__ __forceinline__ int number(int u, int left) const {
        int other = row + u * each, there = MN ? n_line - line0 - at : left - at;
        return (MN ? other < left : line0 + other < n_line) ? max(0, min(there, 8)) : 0;
    }
    // Two words around an element, and how many bytes before it they begin.
    __device__ __forceinline__ u32 read(uint4 &v, uint4 &w, int u, int left) const {
        const u16 *x = from + (u64)(u * each) * stride;
        int n = number(u, left);
        u32 shift = (u32)(u64)x & 15;
        const char *word = (const char *)x - shift;
        if (n == 8 && word >= begin && word + (shift ? 32 : 16) <= end) {
            v = *(const uint4 *)word;
            if (shift) w = *(const uint4 *)(word + 16);
            return shift;
        }
        u32 e[8];
#pragma unroll
        for (int y = 0; y < 8; ++y) e[y] = y < n ? x[y] : 0;
        v = make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
        return 0;
    }
    template <bool WHOLE> __device__ __forceinline__ void every(u32 stage, int left) const {
#pragma unroll 1
        for (int u0 = 0; u0 < count; u0 += together) {
            uint4 v[together], w[together] = {};
            u32 shift[together];
#pragma unroll
            for (int u = 0; u < together; ++u) shift[u] = read(v[u], w[u], u0 + u, left);
#pragma unroll
            for (int u = 0; u < together; ++u) {
                int other = row + (u0 + u) * each;
                if (MN || line0 + other < n_line)
                    rk_write_line(stage + (MN ? place<LINES, MN>(at, other) : place<LINES, MN>(other, at)), rk_shifted(v[u], w[u], shift[u]));
            }
        }
    }
};

// Loads of factors whose rows begin at any word, for gemm_warps.cuh. Uses its macros BI, BJ, BK, P_MN, Q_MN, N_THREAD.
// Rows lie in shared memory as words of 4 bytes at their alignment in global memory: a row that begins at an odd
// word is one word further on, and lanes take its elements one by one.
#pragma once
#include "rk_mma.cuh"

#define ROW_LOOSE(LINES, MN) (((MN ? LINES : BK) / 2 + 4) * 4)  // bytes: lanes read different banks
#define AT_Q (ROW_LOOSE(BI, P_MN) * (P_MN ? BK : BI))
#define STAGE (AT_Q + ROW_LOOSE(BJ, Q_MN) * (Q_MN ? BK : BJ))

// Which rows of a factor's part begin at an odd word: row r where first + r ld is odd.
struct Odd {
    u32 first = 0, ld = 0;
    Odd() = default;
    __device__ __forceinline__ Odd(const u16 *part, int ld) : first((u32)((u64)part >> 1)), ld(ld) {}
    __device__ __forceinline__ u32 at(int row) const { return (first + row * ld) & 1; }
};

template <int LINES, int MN>
__device__ __forceinline__ void fetch(u32 to, const u16 *m, int ld, int line0, int n_line, int r0, int n_r) {
    constexpr int across = (MN ? LINES : BK) / 2 + 1, n = across * (MN ? BK : LINES);  // words of 4 bytes
#pragma unroll
    for (int u = 0; u < (n + N_THREAD - 1) / N_THREAD; ++u) {
        int e = threadIdx.x + u * N_THREAD, row = e / across, word = e % across;
        if (n % N_THREAD && e >= n) break;
        int left = MN ? n_line - line0 : n_r - r0;  // elements of the row
        bool inside = MN ? r0 + row < n_r : line0 + row < n_line;
        const u16 *from = m + (MN ? (u64)(r0 + row) * ld + line0 : (u64)(line0 + row) * ld + r0);
        int odd = (int)((u64)from >> 1 & 1), count = min(left + odd - 2 * word, 2);  // elements of the word
        if (!inside || count < 0) count = 0;
        rk_copy<4>(to + row * ROW_LOOSE(LINES, MN) + word * 4, count ? from - odd + 2 * word : m - ((u64)m >> 1 & 1), 2 * count);
    }
}

// 16 lines x 16 depths, as `fragment` of gemm_warps.cuh.
template <int LINES, int MN> __device__ __forceinline__ void fragment(u32 (&v)[4], u32 stage, int line, int depth, Odd odd) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 4; ++h) {
        int i = line + h % 2 * 8 + lane / 4, r = depth + h / 2 * 8 + lane % 4 * 2;
        u32 pair[2];
#pragma unroll
        for (int x = 0; x < 2; ++x) {
            int row = MN ? r + x : i, column = MN ? i : r + x;
            pair[x] = *(const u16 *)rk_at(stage + row * ROW_LOOSE(LINES, MN) + (column + odd.at(row)) * 2);
        }
        v[h] = pair[0] | pair[1] << 16;
    }
}

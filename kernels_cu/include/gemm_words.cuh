// Lines of 64 16-bit results from shared memory to a matrix whose lines begin anywhere.
#pragma once
#include "rk_tma.cuh"

// Lines `row`, row + step, ... of the `n_row` that exist; line r is at `lines` + 128 r, and its results from `to` + r ld on, of which
// `left` exist. A lane has a pair of each. Pairs begin at multiples of 4 bytes; where a line of the matrix does not, the first pair is
// the last result and the first, which are stored singly. Several lines are read before the first one of them is stored.
template <int COUNT> __device__ __forceinline__ void write_odd_lines(u16 *to, int ld, u32 lines, int row, int step, int n_row, int left) {
    constexpr int batch = COUNT % 8 == 0 ? 8 : COUNT % 4 == 0 ? 4 : 1;
    int lane = threadIdx.x % 32;
    auto second_of = [&](int r) { return 2 * lane + 1 - (int)((u64)(to + (u64)r * ld) >> 1 & 1); };
#pragma unroll 1
    for (int u0 = 0; u0 < COUNT && row < n_row; u0 += batch, row += batch * step) {
        u32 low[batch], high[batch];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int r = row + u * step, second = second_of(r), first = second > 0 ? second - 1 : 63;
            low[u] = *(const u16 *)rk_at(rk_swizzle(lines + r * 128 + first * 2));
            high[u] = *(const u16 *)rk_at(rk_swizzle(lines + r * 128 + second * 2));
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int r = row + u * step, second = second_of(r), first = second > 0 ? second - 1 : 63;
            u16 *line = to + (u64)r * ld;
            if (r >= n_row) break;
            if (second > 0 && second < left) {
                *(u32 *)(line + first) = low[u] | high[u] << 16;
            } else {
                if (first < left) line[first] = (u16)low[u];
                if (second < left) line[second] = (u16)high[u];
            }
        }
    }
}

// TILE x 64 results of a product by 128 threads: chains of fused multiply-adds in ascending order. Factors have any
// strides; they pass through shared memory, two pieces of DEPTH steps of the sum at a time. Uses the macros REAL, TILE.
#pragma once
#include "rk_real.cuh"
#include "rk_shared.cuh"

#define DEPTH (128 / (int)sizeof(REAL))
#define ROWS (TILE / 8)  // of a thread, which has 4 columns
#define GROUP (ROWS < 4 ? ROWS : 4)
#define ALONG(LINES) (LINES + 4)

// Lines of a factor: strides along lines and along the sum, the first line of the tile, how many there are in all.
struct Lines {
    const REAL *from;
    i64 line, step;
    int first, count;
};

// Request a piece of LINES lines, one step of the sum a row; a warp takes 8 steps of 4 lines, or SPAN lines side by side.
template <int LINES> __device__ __forceinline__ void request(u32 to, const Lines &x, int k0, int depth) {
    constexpr int SPAN = LINES < 32 ? LINES : 32, COUNT = LINES * DEPTH / 128, BYTES = (int)sizeof(REAL);
    constexpr int MORE_STEPS = 128 / LINES, MORE_LINES = 128 / DEPTH;  // from copy to copy of a thread
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool across = x.step != 1;  // neighbours in memory are different lines
    const int k = across ? warp / (LINES / SPAN) * (32 / SPAN) + lane / SPAN : warp % (DEPTH / 8) * 8 + lane % 8;
    const int i = across ? warp % (LINES / SPAN) * SPAN + lane % SPAN : warp / (DEPTH / 8) * 4 + lane / 8;
    const REAL *from = x.from + (i64)(x.first + i) * x.line + (i64)(k0 + k) * x.step;
    const i64 ahead = across ? MORE_STEPS * x.step : MORE_LINES * x.line;
    const u32 beside = (across ? MORE_STEPS * ALONG(LINES) : MORE_LINES) * BYTES;
    const bool fixed = across ? x.first + i < x.count : k0 + k < depth;
    const int left = !fixed ? 0 : across ? depth - k0 - k : x.count - x.first - i, each = across ? MORE_STEPS : MORE_LINES;
    to += (k * ALONG(LINES) + i) * BYTES;
#pragma unroll 8
    for (int u = 0; u < COUNT; u++, from += ahead, to += beside) {
        const bool inside = u * each < left;
        rk_copy<BYTES>(to, inside ? from : x.from, inside ? BYTES : 0);
    }
}

template <int N> struct __align__(N * (int)sizeof(REAL) < 16 ? N * (int)sizeof(REAL) : 16) Part { REAL v[N]; };

struct Stack {
    REAL sums[ROWS][4] = {};

    // Lines of a thread: in groups of up to 4, eight groups apart. A warp has 4 x 8 threads.
    static __device__ __forceinline__ int row(int r) {
        return r / GROUP * 8 * GROUP + (threadIdx.x / 64 * 4 + threadIdx.x % 32 / 8) * GROUP + r % GROUP;
    }
    static __device__ __forceinline__ int column(int s) { return (threadIdx.x / 32 % 2 * 8 + threadIdx.x % 8) * 4 + s; }

    // act(sum, row, column) for each result that exists; the tile begins at (row0, column0).
    template <class Act> __device__ __forceinline__ void each(int row0, i64 m, int column0, i64 n, Act act) {
#pragma unroll
        for (int x = 0; x < ROWS * 4; x++) {
            const i64 i = row0 + row(x / 4), j = column0 + column(x % 4);
            if (i < m && j < n) act(sums[x / 4][x % 4], i, j);
        }
    }

    __device__ __forceinline__ void add(const Lines &a, const Lines &b, int depth) {
        constexpr int size_a = DEPTH * ALONG(TILE), size_b = DEPTH * ALONG(64);
        extern __shared__ __align__(16) unsigned char raw[];
        const REAL *held = (const REAL *)raw;
        const u32 shared = rk_shared_address(raw);
        auto ask = [&](int k0) {
            if (k0 < depth) {
                const u32 at = shared + k0 / DEPTH % 2 * (size_a + size_b) * (int)sizeof(REAL);
                request<TILE>(at, a, k0, depth);
                request<64>(at + size_a * (int)sizeof(REAL), b, k0, depth);
            }
            rk_copies_end();
        };
        ask(0);
        for (int k0 = 0; k0 < depth; k0 += DEPTH) {
            ask(k0 + DEPTH);
            rk_copies_left<1>();
            __syncthreads();
            const REAL *as = held + k0 / DEPTH % 2 * (size_a + size_b) + row(0), *bs = as - row(0) + size_a + column(0);
            const int left = depth - k0 < DEPTH ? depth - k0 : DEPTH;
            auto step = [&](int k) {
                const Part<4> q = *(const Part<4> *)(bs + k * ALONG(64));
#pragma unroll
                for (int r = 0; r < ROWS; r += GROUP) {
                    const Part<GROUP> p = *(const Part<GROUP> *)(as + k * ALONG(TILE) + r * 8);
#pragma unroll
                    for (int x = 0; x < GROUP * 4; x++) sums[r + x / 4][x % 4] = rk_fma(p.v[x / 4], q.v[x % 4], sums[r + x / 4][x % 4]);
                }
            };
            if (left == DEPTH) {
#pragma unroll 8
                for (int k = 0; k < DEPTH; k++) step(k);
            } else {  // a step that does not exist would turn -0 into +0
#pragma unroll 1
                for (int k = 0; k < left; k++) step(k);
            }
            __syncthreads();
        }
    }
};

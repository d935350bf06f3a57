// Products of doubles on tensor cores for det_gemm.cu. Uses its macros, its element layout and its copies.
#pragma once

// What DEPTH steps need is read while those before are multiplied; of the next stage, too, once that is there.
// A lane has steps lane % 4, 4 + lane % 4, ... of them.
#ifndef DEPTH
#define DEPTH (RM * RN < 16 && TILE_K % 32 == 0 ? 16 : 8)
#endif
static_assert(TILE_K % (2 * DEPTH) == 0, "macros");
__device__ __forceinline__ const double *lane_a(const double *as, int tm) { return as + (ACROSS_A ? threadIdx.x % 4 * ROW_A + tm : tm * ROW_A + threadIdx.x % 4); }
__device__ __forceinline__ const double *lane_b(const double *bs, int tn) {
    int k = threadIdx.x % 4, line = tn - 2 * k + threadIdx.x % 32 / 4;
    return bs + (ACROSS_B ? k * ROW_B + line : line * ROW_B + k);
}
struct Ahead {
    double a[2][RM / 2][DEPTH / 2], b[2][RN / 2][DEPTH / 4];
    __device__ __forceinline__ void read(int to, const double *as, const double *bs, int p) {
#pragma unroll
        for (int x = 0; x < RM / 2 * (DEPTH / 2); ++x) {
            int i = x / (DEPTH / 2), y = x % (DEPTH / 2);
            a[to][i][y] = element_a(as, row_of(2 * i + y % 2, 0), p + y / 2 * 4);
        }
#pragma unroll
        for (int x = 0; x < RN / 2 * (DEPTH / 4); ++x) b[to][x / (DEPTH / 4)][x % (DEPTH / 4)] = element_b(bs, x / (DEPTH / 4) * 8, p + x % (DEPTH / 4) * 4);
    }
};
// Product number x of a warp's.
__device__ __forceinline__ void multiply_pair(double (&acc)[RM][RN], const Ahead &v, int from, int x) {
    int i = x / (RN / 2) * 2, j = x % (RN / 2) * 2;
    double c[4] = {acc[i][j], acc[i][j + 1], acc[i + 1][j], acc[i + 1][j + 1]};
    rk_dmma(c, v.a[from][i / 2], v.b[from][j / 2]);
    acc[i][j] = c[0], acc[i][j + 1] = c[1], acc[i + 1][j] = c[2], acc[i + 1][j + 1] = c[3];
}
template <bool COPY, class Later>
__device__ __forceinline__ void multiply(double (&acc)[RM][RN], Ahead &v, const double *as, const double *bs, CopiesA &ca, CopiesB &cb, Later later) {
    constexpr int parts = TILE_K / UNIT, pairs = RM * RN / 4, grains = TILE_K / DEPTH, each = (parts + grains - 2) / (grains - 1);
#pragma unroll
    for (int p = 0; p < TILE_K; p += DEPTH) {
        int now = p / DEPTH % 2;
        if (p + DEPTH < TILE_K) v.read(1 - now, as, bs, p + DEPTH);
        else later();
#pragma unroll
        for (int x = 0; x < pairs; ++x) {
#pragma unroll
            for (int u = 0; COPY && u < each; ++u)
                if (min(u * pairs / each + 1, pairs - 1) == x && p / DEPTH * each + u < parts) ca.part(p / DEPTH * each + u), cb.part(p / DEPTH * each + u);
            multiply_pair(acc, v, now, x);
        }
    }
}
// The end of the sum: `left` steps of a stage. Beyond them b is 0 in shared memory; with a -0 there fma(a, b, c) is c: with 0 it
// would turn -0 into +0.
__device__ __forceinline__ void multiply_end(double (&acc)[RM][RN], Ahead &v, const double *as, const double *bs, int left) {
#pragma unroll 1
    for (int p = 0; p < left; p += DEPTH) {
        v.read(0, as, bs, p);
#pragma unroll
        for (int x = 0; x < RM / 2 * (DEPTH / 2); ++x)
            if (p + (int)threadIdx.x % 4 + x % (DEPTH / 2) / 2 * 4 >= left) v.a[0][x / (DEPTH / 2)][x % (DEPTH / 2)] = -0.0;
#pragma unroll
        for (int x = 0; x < RM * RN / 4; ++x) multiply_pair(acc, v, 0, x);
    }
}

// Products of doubles on tensor cores for det_gemm.cu. Uses its macros, its element layout and its copies.
#pragma once

// What 8 steps need is read while those before are multiplied; of the next stage, too, once that is there.
// A lane has steps lane % 4 and 4 + lane % 4 of them.
__device__ __forceinline__ const double *lane_a(const double *as, int tm) { return as + (ACROSS_A ? threadIdx.x % 4 * ROW_A + tm : tm * ROW_A + threadIdx.x % 4); }
__device__ __forceinline__ const double *lane_b(const double *bs, int tn) {
    int k = threadIdx.x % 4, line = tn - 2 * k + threadIdx.x % 32 / 4;
    return bs + (ACROSS_B ? k * ROW_B + line : line * ROW_B + k);
}
struct Ahead {
    double a[2][RM / 2][4], b[2][RN / 2][2];
    __device__ __forceinline__ void read(int to, const double *as, const double *bs, int p) {
#pragma unroll
        for (int x = 0; x < RM * 2; ++x) a[to][x / 4][x % 4] = element_a(as, row_of(x / 4 * 2 + x % 2, 0), p + x % 4 / 2 * 4);
#pragma unroll
        for (int x = 0; x < RN; ++x) b[to][x / 2][x % 2] = element_b(bs, x / 2 * 8, p + x % 2 * 4);
    }
};
template <bool COPY, class Later>
__device__ __forceinline__ void multiply(double (&acc)[RM][RN], Ahead &v, const double *as, const double *bs, CopiesA &ca, CopiesB &cb, Later later) {
    constexpr int parts = TILE_K / UNIT, pairs = RM * RN / 4, each = (parts + TILE_K / 8 - 2) / (TILE_K / 8 - 1);
#pragma unroll
    for (int p = 0; p < TILE_K; p += 8) {
        int now = p / 8 % 2;
        if (p + 8 < TILE_K) v.read(1 - now, as, bs, p + 8);
        else later();
#pragma unroll
        for (int x = 0; x < pairs; ++x) {
            int i = x / (RN / 2) * 2, j = x % (RN / 2) * 2;
#pragma unroll
            for (int u = 0; COPY && u < each; ++u)
                if (min(u * pairs / each + 1, pairs - 1) == x && p / 8 * each + u < parts) ca.part(p / 8 * each + u), cb.part(p / 8 * each + u);
            double c[4] = {acc[i][j], acc[i][j + 1], acc[i + 1][j], acc[i + 1][j + 1]};
            rk_dmma(c, v.a[now][i / 2], v.b[now][j / 2]);
            acc[i][j] = c[0], acc[i][j + 1] = c[1], acc[i + 1][j] = c[2], acc[i + 1][j + 1] = c[3];
        }
    }
}

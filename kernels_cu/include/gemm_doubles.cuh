// Products of doubles on tensor cores for det_gemm.cu. Uses its macros, its element layout and its copies.
#pragma once

// What DEPTH steps need is read while those before are multiplied; of the next stage, too, once that is there: the lines of a row of
// products as soon as that row is done. For two copies of all, registers are too few: the compiler would read each just before it
// is used. A lane has steps lane % 4, 4 + lane % 4, ... of them.
#define DEPTH (RM * RN < 16 && TILE_K % 32 == 0 ? 16 : 8)
#define ROWS (RM / 2)                 // products of a warp, one below the other
#define COLUMNS (RN / 2)              // and side by side
#define COPIES_A (ROWS == 1 ? 2 : 1)  // of a single one what is read next would come too late
static_assert(TILE_K % (2 * DEPTH) == 0, "macros");
__device__ __forceinline__ const double *lane_a(const double *as, int tm) { return as + (ACROSS_A ? threadIdx.x % 4 * ROW_A + tm : tm * ROW_A + threadIdx.x % 4); }
__device__ __forceinline__ const double *lane_b(const double *bs, int tn) {
    int k = threadIdx.x % 4, line = tn - 2 * k + threadIdx.x % 32 / 4;
    return bs + (ACROSS_B ? k * ROW_B + line : line * ROW_B + k);
}
struct Ahead {
    double a[COPIES_A][ROWS][DEPTH / 2], b[2][COLUMNS][DEPTH / 4];
    __device__ __forceinline__ void read_a(int to, int i, const double *as, int p) {
#pragma unroll
        for (int y = 0; y < DEPTH / 2; ++y) a[to % COPIES_A][i][y] = element_a(as, row_of(2 * i + y % 2, 0), p + y / 2 * 4);
    }
    __device__ __forceinline__ void read_b(int to, const double *bs, int p) {
#pragma unroll
        for (int x = 0; x < COLUMNS * (DEPTH / 4); ++x) b[to][x / (DEPTH / 4)][x % (DEPTH / 4)] = element_b(bs, x / (DEPTH / 4) * 8, p + x % (DEPTH / 4) * 4);
    }
    __device__ __forceinline__ void read(int to, const double *as, const double *bs, int p) {
        read_b(to, bs, p);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) read_a(to, i, as, p);
    }
    __device__ __forceinline__ void begin(const double *as, const double *bs) { read(0, as, bs, 0); }
    // Product j of row i.
    __device__ __forceinline__ void multiply(double (&acc)[RM][RN], int from, int i, int j) const {
        double c[4] = {acc[2 * i][2 * j], acc[2 * i][2 * j + 1], acc[2 * i + 1][2 * j], acc[2 * i + 1][2 * j + 1]};
        rk_dmma(c, a[from % COPIES_A][i], b[from][j]);
        acc[2 * i][2 * j] = c[0], acc[2 * i][2 * j + 1] = c[1], acc[2 * i + 1][2 * j] = c[2], acc[2 * i + 1][2 * j + 1] = c[3];
    }
};
// `arrived` waits for the next stage, which begins at `as_next`, `bs_next`.
template <class Arrived>
__device__ __forceinline__ void multiply(double (&acc)[RM][RN], Ahead &v, const double *as, const double *bs, const double *as_next, const double *bs_next,
                                         CopiesA &ca, CopiesB &cb, Arrived arrived) {
    constexpr int parts = TILE_K / UNIT, pairs = ROWS * COLUMNS, grains = TILE_K / DEPTH, each = (parts + grains - 2) / (grains - 1);
#pragma unroll
    for (int p = 0; p < TILE_K; p += DEPTH) {
        const bool last = p + DEPTH == TILE_K;
        const int now = p / DEPTH % 2, to = last ? 0 : p + DEPTH;
        const double *next_a = last ? as_next : as, *next_b = last ? bs_next : bs;
        if (ROWS == 1) {
            if (last) arrived();
            v.read(1 - now, next_a, next_b, to);
        }
#pragma unroll
        for (int x = 0; x < pairs; ++x) {
            int i = x / COLUMNS, j = x % COLUMNS;
#pragma unroll
            for (int u = 0; u < each; ++u)
                if (min(u * pairs / each + 1, pairs - 1) == x && p / DEPTH * each + u < parts) ca.part(p / DEPTH * each + u), cb.part(p / DEPTH * each + u);
            v.multiply(acc, now, i, j);
            if (ROWS == 1 || j + 1 < COLUMNS) continue;
            if (i == 0 && last) arrived();
            if (i == 0) v.read_b(1 - now, next_b, to);
            v.read_a(0, i, next_a, to);
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
        for (int x = 0; x < ROWS * (DEPTH / 2); ++x)
            if (p + (int)threadIdx.x % 4 + x % (DEPTH / 2) / 2 * 4 >= left) v.a[0][x / (DEPTH / 2)][x % (DEPTH / 2)] = -0.0;
#pragma unroll
        for (int x = 0; x < ROWS * COLUMNS; ++x) v.multiply(acc, 0, x / COLUMNS, x % COLUMNS);
    }
}

// Products of doubles on tensor cores for det_gemm.cu. Uses its macros, its element layout and its copies.
#pragma once

// Products of a warp: ROWS below each other, COLUMNS side by side, of DEPTH steps at a time. A lane has steps lane % 4, 4 + lane % 4, ...
// of them. What a product needs is read while those before are multiplied, of the next stage, too, once that is there: a row as soon as
// the one KEPT rows before is done; a column as soon as the last row has used it, or where there are registers for COPIES of all, when
// the first row is done.
#define ROWS (RM / 2)
#define COLUMNS (RN / 2)
#define DEPTH (RM > 8 ? 16 : 8)
#define KEPT (ROWS == 1 || ROWS * COLUMNS >= 16 ? 2 : ROWS)
#define COPIES (ROWS == 2 || ROWS == 3 ? 2 : 1)
#define N_ROW (TILE_K / DEPTH * ROWS)  // of all steps of a stage
static_assert(N_ROW % KEPT == 0 && TILE_K / DEPTH % COPIES == 0, "macros");
__device__ __forceinline__ const double *lane_a(const double *as, int tm) { return as + (ACROSS_A ? threadIdx.x % 4 * ROW_A + tm : tm * ROW_A + threadIdx.x % 4); }
__device__ __forceinline__ const double *lane_b(const double *bs, int tn) {
    int k = threadIdx.x % 4, line = tn - 2 * k + threadIdx.x % 32 / 4;
    return bs + (ACROSS_B ? k * ROW_B + line : line * ROW_B + k);
}
template <int N> __device__ __forceinline__ void read_row(double (&a)[N], const double *as, int i, int p) {
#pragma unroll
    for (int y = 0; y < N; ++y) a[y] = element_a(as, row_of(2 * i + y % 2, 0), p + y / 2 * 4);
}
template <int N> __device__ __forceinline__ void read_column(double (&b)[N], const double *bs, int j, int p) {
#pragma unroll
    for (int y = 0; y < N; ++y) b[y] = element_b(bs, 8 * j, p + 4 * y);
}
template <int N> __device__ __forceinline__ void multiply_pair(double (&acc)[RM][RN], const double (&a)[N], const double (&b)[N / 2], int i, int j) {
    double c[4] = {acc[2 * i][2 * j], acc[2 * i][2 * j + 1], acc[2 * i + 1][2 * j], acc[2 * i + 1][2 * j + 1]};
    rk_dmma(c, a, b);
    acc[2 * i][2 * j] = c[0], acc[2 * i][2 * j + 1] = c[1], acc[2 * i + 1][2 * j] = c[2], acc[2 * i + 1][2 * j + 1] = c[3];
}
struct Ahead {
    double a[KEPT][DEPTH / 2], b[COPIES][COLUMNS][DEPTH / 4];
    // Row r of those of all steps of a stage.
    __device__ __forceinline__ void read_a(int r, const double *as) { read_row(a[r % KEPT], as, r % ROWS, r / ROWS * DEPTH); }
    __device__ __forceinline__ void read_b(int copy, const double *bs, int p) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) read_column(b[copy][j], bs, j, p);
    }
    __device__ __forceinline__ void begin(const double *as, const double *bs) {
#pragma unroll
        for (int r = 0; r < KEPT; ++r) read_a(r, as);
        read_b(0, bs, 0);
    }
};
// `arrived` waits for the next stage, which begins at `as_next`, `bs_next`. Copies are asked for before.
template <class Arrived>
__device__ __forceinline__ void multiply(double (&acc)[RM][RN], Ahead &v, const double *as, const double *bs, const double *as_next, const double *bs_next,
                                         CopiesA &ca, CopiesB &cb, Arrived arrived) {
    constexpr int wait = N_ROW - KEPT, before = (wait ? wait : 1) * COLUMNS, parts = TILE_K / UNIT;
#pragma unroll
    for (int r = 0; r < N_ROW; ++r) {
        const int i = r % ROWS, grain = r / ROWS, further = (grain + 1) * DEPTH % TILE_K;
        const double *next_b = further ? bs : bs_next;
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
#pragma unroll
            for (int u = 0; u < parts; ++u)
                if (min(u * before / parts + 1, before - 1) == r * COLUMNS + j) ca.part(u), cb.part(u);
            multiply_pair(acc, v.a[r % KEPT], v.b[grain % COPIES][j], i, j);
            if (COPIES == 1 && i == ROWS - 1) read_column(v.b[0][j], next_b, j, further);
        }
        if (r == wait) arrived();
        if (COPIES == 2 && i == 0) v.read_b((grain + 1) % 2, next_b, further);
        v.read_a((r + KEPT) % N_ROW, r + KEPT < N_ROW ? as : as_next);
    }
}
// The end of the sum: `left` steps of a stage. Beyond them b is 0 in shared memory; with a -0 there fma(a, b, c) is c: with 0 it
// would turn -0 into +0.
__device__ __forceinline__ void multiply_end(double (&acc)[RM][RN], Ahead &v, const double *as, const double *bs, int left) {
#pragma unroll 1
    for (int p = 0; p < left; p += DEPTH) {
        v.read_b(0, bs, p);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            double(&a)[DEPTH / 2] = v.a[i % KEPT];
            read_row(a, as, i, p);
#pragma unroll
            for (int y = 0; y < DEPTH / 2; ++y)
                if (p + (int)threadIdx.x % 4 + y / 2 * 4 >= left) a[y] = -0.0;
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) multiply_pair(acc, a, v.b[0][j], i, j);
        }
    }
}

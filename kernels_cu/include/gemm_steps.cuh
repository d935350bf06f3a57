// TILE_K steps of the sum for det_gemm.cu; COPY: copies of a later stage in between.
#pragma once

#if PIPED
// What GRAIN steps of some lines need is read while those before are multiplied; of the next stage, too, once that is there.
#define GRAIN (ACROSS_A && ACROSS_B && RM * RN >= 32 ? 1 : UNIT)
#define LINES_A (GRAIN > 1 && RM * RN >= 64 ? 4 : RM)  // of a that are read together: fewer registers hold what is read
__device__ __forceinline__ const REAL *lane_a(const REAL *as, int tm) { return as + row_of(0, tm) * (ACROSS_A ? 1 : ROW_A); }
__device__ __forceinline__ const REAL *lane_b(const REAL *bs, int tn) { return bs + column_of(0, tn) * (ACROSS_B ? 1 : ROW_B); }
struct Ahead {
    REAL a[2][LINES_A][GRAIN], b[2][RN][GRAIN];
    __device__ __forceinline__ void read(int to, const REAL *as, const REAL *bs, int p, int first = 0) {
        as += first * THREADS_M * (ACROSS_A ? 1 : ROW_A);
        read_lines<LINES_A, ACROSS_A, ROW_A, THREADS_M>(a[(to * (RM / LINES_A) + first / LINES_A) % 2], as, p);
        if (first == 0) read_lines<RN, ACROSS_B, ROW_B, THREADS_N>(b[to % 2], bs, p);
    }
};
template <bool COPY, class Later>
__device__ __forceinline__ void multiply(REAL (&acc)[RM][RN], Ahead &v, const REAL *as, const REAL *bs, CopiesA &ca, CopiesB &cb, Later later) {
#pragma unroll
    for (int p = 0; p < TILE_K; p += GRAIN) {
        if (COPY) ca.at_step<GRAIN>(p), cb.at_step<GRAIN>(p);
#pragma unroll
        for (int first = 0; first < RM; first += LINES_A) {
            int number = p / GRAIN, end = first + LINES_A == RM;
            if (p + GRAIN < TILE_K || !end) v.read(number + end, as, bs, p + end * GRAIN, end ? 0 : first + LINES_A);
            else later();
#pragma unroll
            for (int u = 0; u < GRAIN; ++u)
#pragma unroll
                for (int x = 0; x < LINES_A * RN; ++x) {
                    int i = x / RN, j = i % 2 ? RN - 1 - x % RN : x % RN;  // alternating direction: the operand read last is reused
                    REAL &c = acc[first + i][j];
                    c = fma_rn(v.a[(number * (RM / LINES_A) + first / LINES_A) % 2][i][u], v.b[number % 2][j][u], c);
                }
        }
    }
}
#else
template <bool COPY>
__device__ __forceinline__ void multiply(REAL (&acc)[RM][RN], const REAL *as, const REAL *bs, int tm, int tn, CopiesA &ca, CopiesB &cb) {
    REAL ar[AHEAD + 1][RM][UNIT], br[AHEAD + 1][RN][UNIT];
    as += row_of(0, tm) * (ACROSS_A ? 1 : ROW_A), bs += column_of(0, tn) * (ACROSS_B ? 1 : ROW_B);
    auto read = [&](int p) {
        if (p >= TILE_K) return;
        read_lines<RM, ACROSS_A, ROW_A, THREADS_M>(ar[p / UNIT % (AHEAD + 1)], as, p);
        read_lines<RN, ACROSS_B, ROW_B, THREADS_N>(br[p / UNIT % (AHEAD + 1)], bs, p);
    };
#pragma unroll
    for (int p = 0; p < AHEAD * UNIT; p += UNIT) read(p);
#pragma unroll UNROLL
    for (int p = 0; p < TILE_K; p += UNIT) {
        read(p + AHEAD * UNIT);
        if (COPY) ca.part(p / UNIT), cb.part(p / UNIT);
        auto &a = ar[p / UNIT % (AHEAD + 1)];
        auto &b = br[p / UNIT % (AHEAD + 1)];
#pragma unroll
        for (int u = 0; u < UNIT; ++u)
#pragma unroll
            for (int x = 0; x < RM * RN; ++x) {
                int i = x / RN, j = i % 2 ? RN - 1 - x % RN : x % RN;  // alternating direction: the operand read last is reused
                acc[i][j] = fma_rn(a[i][u], b[j][u], acc[i][j]);
            }
    }
}
#endif

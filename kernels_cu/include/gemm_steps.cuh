// TILE_K steps of the sum for det_gemm.cu; COPY: copies of a later stage in between.
#pragma once

#if PIPED
// What a step needs is read while the one before is multiplied; of the next stage, too, once that is there.
__device__ __forceinline__ const REAL *lane_a(const REAL *as, int tm) { return as + row_of(0, tm); }
__device__ __forceinline__ const REAL *lane_b(const REAL *bs, int tn) { return bs + column_of(0, tn); }
struct Ahead {
    REAL a[2][RM][1], b[2][RN][1];
    __device__ __forceinline__ void read(int to, const REAL *as, const REAL *bs, int p) {
        read_lines<RM, ACROSS_A, ROW_A, THREADS_M>(a[to], as, p);
        read_lines<RN, ACROSS_B, ROW_B, THREADS_N>(b[to], bs, p);
    }
};
template <bool COPY, class Later>
__device__ __forceinline__ void multiply(REAL (&acc)[RM][RN], Ahead &v, const REAL *as, const REAL *bs, CopiesA &ca, CopiesB &cb, Later later) {
#pragma unroll
    for (int p = 0; p < TILE_K; ++p) {
        int now = p % 2;
        if (COPY) ca.at_step(p), cb.at_step(p);
        if (p + 1 < TILE_K) v.read(1 - now, as, bs, p + 1);
        else later();
#pragma unroll
        for (int x = 0; x < RM * RN; ++x) {
            int i = x / RN, j = i % 2 ? RN - 1 - x % RN : x % RN;  // alternating direction: the operand read last is reused
            acc[i][j] = fma_rn(v.a[now][i][0], v.b[now][j][0], acc[i][j]);
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

// TILE_K steps of the sum for det_gemm.cu, with copies of a later stage in between.
#pragma once

// Step u of those that were read.
template <int STEPS>
__device__ __forceinline__ void multiply_step(REAL (&acc)[RM][RN], const REAL (&a)[RM][STEPS], const REAL (&b)[RN][STEPS], int u) {
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) {
        int i = x / RN, j = i % 2 ? RN - 1 - x % RN : x % RN;  // alternating direction: the operand read last is reused
        acc[i][j] = fma_rn(a[i][u], b[j][u], acc[i][j]);
    }
}

#if ACROSS_A && ACROSS_B && RM * RN >= 32
// What a step needs is read while the one before is multiplied; of the next stage, too, once that is there.
__device__ __forceinline__ const REAL *lane_a(const REAL *as, int tm) { return as + row_of(0, tm); }
__device__ __forceinline__ const REAL *lane_b(const REAL *bs, int tn) { return bs + column_of(0, tn); }
struct Ahead {
    REAL a[2][RM][1], b[2][RN][1];
    __device__ __forceinline__ void read(int to, const REAL *as, const REAL *bs, int p) {
        read_lines<RM, ACROSS_A, ROW_A, THREADS_M>(a[to], as, p);
        read_lines<RN, ACROSS_B, ROW_B, THREADS_N>(b[to], bs, p);
    }
    __device__ __forceinline__ void begin(const REAL *as, const REAL *bs) { read(0, as, bs, 0); }
};
// `arrived` waits for the next stage, which begins at `as_next`, `bs_next`.
template <class Arrived>
__device__ __forceinline__ void multiply(REAL (&acc)[RM][RN], Ahead &v, const REAL *as, const REAL *bs, const REAL *as_next, const REAL *bs_next,
                                         CopiesA &ca, CopiesB &cb, Arrived arrived) {
#pragma unroll
    for (int p = 0; p < TILE_K; ++p) {
        int now = p % 2;
        ca.at_step(p), cb.at_step(p);
        if (p + 1 < TILE_K) v.read(1 - now, as, bs, p + 1);
        else arrived(), v.read(1 - now, as_next, bs_next, 0);
        multiply_step(acc, v.a[now], v.b[now], 0);
    }
}
// The end of the sum: `left` steps of a stage, the first of which has been read.
__device__ __forceinline__ void multiply_end(REAL (&acc)[RM][RN], Ahead &v, const REAL *as, const REAL *bs, int left) {
#pragma unroll 1
    for (int p = 0; p < left; p += 2) {
        v.read(1, as, bs, min(p + 1, left - 1));
        multiply_step(acc, v.a[0], v.b[0], 0);
        v.read(0, as, bs, min(p + 2, left - 1));
        if (p + 1 < left) multiply_step(acc, v.a[1], v.b[1], 0);
    }
}
#else
struct Units {  // UNIT steps of a thread's lines
    REAL a[RM][UNIT], b[RN][UNIT];
    __device__ __forceinline__ void read(const REAL *as, const REAL *bs, int p) {
        read_lines<RM, ACROSS_A, ROW_A, THREADS_M>(a, as, p);
        read_lines<RN, ACROSS_B, ROW_B, THREADS_N>(b, bs, p);
    }
    __device__ __forceinline__ void multiply(REAL (&acc)[RM][RN], int left) const {
#pragma unroll
        for (int u = 0; u < UNIT; ++u)
            if (u < left) multiply_step(acc, a, b, u);
    }
};
__device__ __forceinline__ const REAL *lane_a(const REAL *as, int tm) { return as + row_of(0, tm) * (ACROSS_A ? 1 : ROW_A); }
__device__ __forceinline__ const REAL *lane_b(const REAL *bs, int tn) { return bs + column_of(0, tn) * (ACROSS_B ? 1 : ROW_B); }
#if PIPE
static_assert(TILE_K / UNIT % 2 == 0, "macros");
struct Ahead {
    Units units[2];
    __device__ __forceinline__ void begin(const REAL *as, const REAL *bs) { units[0].read(as, bs, 0); }
};
template <class Arrived>
__device__ __forceinline__ void multiply(REAL (&acc)[RM][RN], Ahead &v, const REAL *as, const REAL *bs, const REAL *as_next, const REAL *bs_next,
                                         CopiesA &ca, CopiesB &cb, Arrived arrived) {
#pragma unroll
    for (int p = 0; p < TILE_K; p += UNIT) {
        int now = p / UNIT % 2;
        ca.part(p / UNIT), cb.part(p / UNIT);
        if (p + UNIT < TILE_K) v.units[1 - now].read(as, bs, p + UNIT);
        else arrived(), v.units[1 - now].read(as_next, bs_next, 0);
        v.units[now].multiply(acc, UNIT);
        hold(acc);  // else operands of many units would be in registers
    }
}
#else
struct Ahead {
    __device__ __forceinline__ void begin(const REAL *, const REAL *) {}
};
template <class Arrived>
__device__ __forceinline__ void multiply(REAL (&acc)[RM][RN], Ahead &, const REAL *as, const REAL *bs, const REAL *, const REAL *, CopiesA &ca,
                                         CopiesB &cb, Arrived arrived) {
    Units v[AHEAD + 1];
    auto read = [&](int p) {
        if (p < TILE_K) v[p / UNIT % (AHEAD + 1)].read(as, bs, p);
    };
#pragma unroll
    for (int p = 0; p < AHEAD * UNIT; p += UNIT) read(p);
#pragma unroll UNROLL
    for (int p = 0; p < TILE_K; p += UNIT) {
        read(p + AHEAD * UNIT);
        ca.part(p / UNIT), cb.part(p / UNIT);
        v[p / UNIT % (AHEAD + 1)].multiply(acc, UNIT);
        if (RM * RN < 16) hold(acc);  // as above
    }
    arrived();
}
#endif
// The end of the sum: `left` steps of a stage.
__device__ __forceinline__ void multiply_end(REAL (&acc)[RM][RN], Ahead &, const REAL *as, const REAL *bs, int left) {
    Units v, w;
    v.read(as, bs, 0);
#pragma unroll 1
    for (int p = 0; p < left; p += 2 * UNIT) {
        w.read(as, bs, min(p + UNIT, TILE_K - UNIT));
        v.multiply(acc, left - p);
        v.read(as, bs, min(p + 2 * UNIT, TILE_K - UNIT));
        w.multiply(acc, left - p - UNIT);
    }
}
#endif

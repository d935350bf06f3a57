// Results of det_gemm.cu by whole rows, where rows of c begin anywhere: L2 would take a long time for the parts of sectors that a thread
// has. Uses its macros, Place, Results.
#pragma once

#define BY_ROWS (CLUSTER == 1 && DMMA && VEC_C == 1 && !COPIERS)                              // through shared memory
#define BY_LANES (CLUSTER == 1 && !DMMA && VEC_C == 1 && !COPIERS && ACROSS_B && RN % 4 == 0)  // of float
#if BY_ROWS
// Each warp moves 8 rows at a time through `lines`, memory of stages that nobody reads any more.
__device__ __forceinline__ void write_rows(const double (&acc)[RM][RN], double *lines, const Results &to, bool adds) {
    constexpr int wide = 4 * RN, line = wide + 8;  // columns of a warp; so many doubles on, a row lies in other banks
    int thread = anew(threadIdx.x), lane = thread % 32;
    Place first(thread - lane);  // of the warp
    lines += thread / 32 * (8 * line);
#pragma unroll
    for (int r = 0; r < RM; ++r) {
        __syncwarp();
#pragma unroll
        for (int q = 0; q < RN; q += 2) {
            double x = acc[r][q], y = acc[r][q + 1];
            if (ADD == 3) x = (REAL)(ALPHA) * x, y = (REAL)(ALPHA) * y;
            *(Unit *)(lines + lane / 4 * line + q * 4 + lane % 4 * 2) = Unit{{x, y}};
        }
        __syncwarp();
        double *at[RN], before[RN];
#pragma unroll
        for (int e = 0; e < RN; ++e) {
            int x = e * 32 + lane, i = to.row0 + row_of(r, first.m + x / wide), j = to.col0 + first.n + x % wide;
            at[e] = i < to.m && j < to.n ? to.c + (u64)i * to.n + j : nullptr;
            before[e] = adds && at[e] ? *at[e] : 0;
        }
#pragma unroll
        for (int e = 0; e < RN; ++e) {
            double v = lines[(e * 32 + lane) / wide * line + (e * 32 + lane) % wide];
            if (at[e]) *at[e] = adds ? before[e] + v : v;
        }
    }
}
#endif
#if BY_LANES
// Exchange x of a lane with bit `mask` for y of the lane without it.
__device__ __forceinline__ void exchange(REAL &x, REAL &y, int mask) {
    bool high = threadIdx.x & mask;
    REAL other = __shfl_xor_sync(~0u, high ? x : y, mask);
    x = high ? other : x, y = high ? y : other;
}
// A warp has 4 rows of 8 lanes with 4 neighbours each. Lanes of the 4 rows exchange results, so that a warp writes 32 neighbours at once.
__device__ __forceinline__ void write_by_lanes(const REAL (&acc)[RM][RN], const Results &to, Place place, bool adds) {
    constexpr int batch = together_of(RM * RN, AT_A_TIME / (int)sizeof(REAL));
    int lane = threadIdx.x % 32, mine = lane / 16 * 2 + lane % 2;  // of 4 rows; then of 4 neighbours
    place.m -= mine;
    int rows = to.m - to.row0 - row_of(0, place.m), columns = to.n - to.col0 - column_of(0, place.n) - mine;  // from here on
    REAL *first = to.c + (i64)(to.m - rows) * to.n + (to.n - columns);
    auto there = [&](int x) { return row_of(x / RN, x % 4) < rows && column_of(x % RN / 4 * 4, 0) < columns; };
    auto at = [&](int x) { return first + (i64)to.n * row_of(x / RN, x % 4) + column_of(x % RN / 4 * 4, 0); };
#pragma unroll
    for (int x0 = 0; x0 < RM * RN; x0 += batch) {
        REAL before[batch], v[batch];
#pragma unroll
        for (int x = 0; x < batch; ++x) {
            before[x] = adds && there(x0 + x) ? *at(x0 + x) : (REAL)0;
            v[x] = acc[(x0 + x) / RN][(x0 + x) % RN];
            if (ADD == 3) v[x] = (REAL)(ALPHA) * v[x];
        }
#pragma unroll
        for (int x = 0; x < batch; x += 4) {
            exchange(v[x], v[x + 2], 16), exchange(v[x + 1], v[x + 3], 16);
            exchange(v[x], v[x + 1], 1), exchange(v[x + 2], v[x + 3], 1);
        }
#pragma unroll
        for (int x = 0; x < batch; ++x)
            if (there(x0 + x)) *at(x0 + x) = adds ? before[x] + v[x] : v[x];
    }
}
#endif

// Rows in shared memory, for sums along a row that are one ascending chain: TEAM threads load and store the rows of a
// block along memory, and a thread of the first warp sums each. Uses the macros REAL, TEAM.
#pragma once
#include "rk_real.cuh"

#ifndef TEAM
#define TEAM 1
#endif
#define ROW_UNIT (16 / (int)sizeof(REAL))
#define ROW_MOST 32  // rows of a block

struct __align__(16) RowUnit { REAL v[ROW_UNIT]; };

// The rows of a block: at most as many as launch.py finds room for, whose arithmetic this is.
struct Rows {
    i64 first;
    int count, n, stride, together;  // length of a row; elements from row to row; threads of a row

    __device__ __forceinline__ Rows(i64 rows, i64 length) {
        const i64 each = (rows + gridDim.x - 1) / gridDim.x;
        first = blockIdx.x * each;
        count = (int)(first + each < rows ? each : first < rows ? rows - first : 0), n = (int)length;
        stride = (n + 31) / 32 * 32 + ROW_UNIT;  // units that threads read together lie in different banks
        for (together = TEAM; together > 32 && TEAM / together < count; together /= 2) {}
    }
    // Each element: load(row, place in the row, place in shared memory) gives what store(..., value) takes; loads of eight
    // elements are under way at a time.
    template <class Load, class Store> __device__ __forceinline__ void each(Load load, Store store) const {
        constexpr int AHEAD = 8;
        using Value = decltype(load(0, 0, 0));
        for (int r = threadIdx.x / together; r < count; r += TEAM / together)
            for (int k0 = threadIdx.x % together; k0 < n; k0 += AHEAD * together) {
                Value v[AHEAD];
#pragma unroll
                for (int u = 0; u < AHEAD; u++) {
                    const int k = k0 + u * together;
                    if (k < n) v[u] = load(r, k, r * stride + k);
                }
#pragma unroll
                for (int u = 0; u < AHEAD; u++) {
                    const int k = k0 + u * together;
                    if (k < n) store(r, k, r * stride + k, v[u]);
                }
            }
    }
    // add(a, b) with the elements of a row of `a` and of `b`, ascending; units are read ahead of their use.
    template <class Add> __device__ __forceinline__ void chain(const REAL *a, const REAL *b, Add add) const {
        constexpr int AHEAD = 4, STEP = AHEAD * ROW_UNIT;
        RowUnit u[AHEAD], v[AHEAD];
        auto read = [&](int k) {
#pragma unroll
            for (int w = 0; w < AHEAD; w++) {
                u[w] = *(const RowUnit *)(a + k + w * ROW_UNIT);
                if (b != a) v[w] = *(const RowUnit *)(b + k + w * ROW_UNIT);
            }
        };
        const int whole = n / STEP * STEP;
        if (whole) read(0);
        for (int k = 0; k < whole; k += STEP) {
            RowUnit p[AHEAD], q[AHEAD];
#pragma unroll
            for (int w = 0; w < AHEAD; w++) p[w] = u[w], q[w] = b != a ? v[w] : u[w];
            if (k + STEP < whole) read(k + STEP);
#pragma unroll
            for (int w = 0; w < STEP; w++) add(p[w / ROW_UNIT].v[w % ROW_UNIT], q[w / ROW_UNIT].v[w % ROW_UNIT]);
        }
        for (int k = whole; k < n; k++) add(a[k], b[k]);
    }
};

struct RowPair { REAL a, b; };

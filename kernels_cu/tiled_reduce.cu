// A tile: sum over axes, of elements, squares or products: squares of differences, products with normalised elements.
//
//   ints: results, kind (0 sum, 1 mean, 2 one over the deviation, 3 products, 4 variance), first, last, lengths of four
//         axes that stay and four that are summed, strides of a, b, c, d, y along these eight
//   floats: number of elements, epsilon; a, b, c, d, y: packed rectangles
//
// The innermost axis is summed first, then the sums of its rows, ascending. TEAM threads own a result: each warp loads
// a piece of 32 rows to shared memory, along them, of which each thread then sums a row while the next piece is on its
// way, and the first thread of all adds the sums in order. Where there are fewer rows than threads, several warps load
// pieces of the same rows. Of few results of many rows, the sums of the rows are made by as many blocks as there is work
// for, with PARTS 1 (parts in place of y: results, rows), and added with PARTS 2 (parts in place of a). With PARTS 1, a sum
// over one axis alone is complete. Macros: TEAM (1, or the threads of a block; PARTS needs them), PARTS, KIND, REAL.
// mirror: rpukit/tiled/_mirror/reductions.py::tiled_reduce
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: TEAM=256 KIND=4
// check: TEAM=256 KIND=3 REAL=double
// check: TEAM=256 PARTS=1 KIND=3
// check: TEAM=256 PARTS=1 KIND=4 REAL=double
// check: TEAM=256 PARTS=2
// source: docs/semantics/tiled.md, reductions.
#include "tiled_rows.cuh"

#ifndef PARTS
#define PARTS 0
#endif
#ifndef KIND
#define KIND 0
#endif
#define THREADS (TEAM == 1 ? 64 : TEAM)
#define AHEAD (KIND == 3 ? 16 : 32)  // elements of a sum over one axis that are under way
#define PIECE 4096                  // parts of a result that are in shared memory at a time
#define WARPS (THREADS / 32)
#define WIDTH (128 / (int)sizeof(REAL) / (KIND == 3 ? 2 : 1))  // of a piece

__device__ __forceinline__ i64 place(const i64 *steps, const i64 *at) {
    return at[0] * steps[0] + at[1] * steps[1] + at[2] * steps[2] + at[3] * steps[3];
}

// A term of a sum is a, v^2 or a v.
__device__ __forceinline__ REAL factor(REAL a, const REAL *b, const REAL *c, const REAL *d) {
    return KIND < 2 ? (REAL)0 : KIND == 3 ? (*b - *c) * *d : a - *b;
}
__device__ __forceinline__ REAL added(REAL s, REAL a, REAL v) {
    return KIND < 2 ? s + a : rk_fma(KIND == 3 ? a : v, v, s);
}

__device__ __forceinline__ void finish(const i64 *ints, const REAL *floats, REAL total, REAL *y) {
    if (ints[3] && KIND != 0 && KIND != 3) {
        total /= floats[0];
        if (KIND == 2) total = (REAL)1 / rk_sqrt(total + floats[1]);
    }
    *y = total;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tiled_reduce(const i64 *ints, const REAL *floats, const REAL *a, const REAL *b, const REAL *c, const REAL *d, REAL *y) {
    const i64 *f = ints + 4, *n = ints + 8, *steps = ints + 12, n_row = n[0] * n[1] * n[2], length = n[3];
#if PARTS == 1
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ i64 places[5][ROW_MOST];
    const bool single = length == 1 && n[0] * n[1] == 1;  // one axis: rows of one element
    const i64 *along = steps + (single ? 6 : 7);
    const Rows rows(single ? ints[0] : ints[0] * n_row, single ? n[2] : length);
    REAL *held = (REAL *)raw, *second = held + (KIND == 3 ? rows.count * rows.stride : 0);
    if (threadIdx.x < rows.count) {
        const i64 q = rows.first + threadIdx.x, row = single ? q : q / n_row, j = single ? 0 : q % n_row;
        const i64 at[8] = {row / (f[1] * f[2] * f[3]), row / (f[2] * f[3]) % f[1], row / f[3] % f[2], row % f[3],
                           j / (n[1] * n[2]), j / n[2] % n[1], j % n[2], 0};
        for (int k = 0; k < 5; k++) places[k][threadIdx.x] = place(steps + 8 * k, at) + (k < 4 ? place(steps + 8 * k + 4, at + 4) : 0);
    }
    __syncthreads();
    rows.each([&](int r, int k, int) {
        const REAL v = a[places[0][r] + k * along[0]];
        return RowPair{v, factor(v, b + places[1][r] + k * along[8], c + places[2][r] + k * along[16], d + places[3][r] + k * along[24])};
    }, [&](int, int, int at, RowPair v) {
        held[at] = KIND < 2 || KIND == 3 ? v.a : v.b;
        if (KIND == 3) second[at] = v.b;
    });
    __syncthreads();
    if (threadIdx.x >= rows.count) return;
    REAL *own = single ? y + places[4][threadIdx.x] : y + rows.first + threadIdx.x;
    REAL total = single && !ints[2] ? *own : (REAL)0;
    const int first = threadIdx.x * rows.stride;
    if (single) rows.chain(held + first, second + first, [&](REAL p, REAL q) { total += added((REAL)0, p, q); });
    else rows.chain(held + first, second + first, [&](REAL p, REAL q) { total = added(total, p, q); });
    if (single) finish(ints, floats, total, own);
    else *own = total;
#elif PARTS == 2
    extern __shared__ __align__(16) unsigned char raw[];
    REAL *held = (REAL *)raw, *own = nullptr, total = 0;
    Rows rows(ints[0], n_row < PIECE ? n_row : PIECE);
    if (threadIdx.x < rows.count) {
        const i64 row = rows.first + threadIdx.x;
        const i64 at[4] = {row / (f[1] * f[2] * f[3]), row / (f[2] * f[3]) % f[1], row / f[3] % f[2], row % f[3]};
        own = y + place(steps + 32, at);
        if (!ints[2]) total = *own;
    }
    for (i64 j0 = 0; j0 < n_row; j0 += PIECE) {
        rows.n = (int)(n_row - j0 < PIECE ? n_row - j0 : PIECE);
        rows.each([&](int r, int k, int) { return a[(rows.first + r) * n_row + j0 + k]; },
                  [&](int, int, int at, REAL v) { held[at] = v; });
        __syncthreads();
        const REAL *parts = held + threadIdx.x * rows.stride;
        if (threadIdx.x < rows.count) rows.chain(parts, parts, [&](REAL p, REAL) { total += p; });
        __syncthreads();
    }
    if (threadIdx.x < rows.count) finish(ints, floats, total, own);
#else
    const i64 row = TEAM == 1 ? (i64)blockIdx.x * THREADS + threadIdx.x : blockIdx.x;
    if (TEAM == 1 && row >= ints[0]) return;
    const i64 at[4] = {row / (f[1] * f[2] * f[3]), row / (f[2] * f[3]) % f[1], row / f[3] % f[2], row % f[3]};
    a += place(steps, at), b += place(steps + 8, at), c += place(steps + 16, at), d += place(steps + 24, at);
    y += place(steps + 32, at);
    const i64 sa = steps[7], sb = steps[15], sc = steps[23], sd = steps[31];
    REAL total = ints[2] ? (REAL)0 : *y;
#if TEAM == 1
    const bool single = length == 1 && n[0] * n[1] == 1;
    if (single) {
        const i64 ja = steps[6], jb = steps[14], jc = steps[22], jd = steps[30];
#pragma unroll AHEAD
        for (i64 j = 0; j < n_row; j++) total += added((REAL)0, a[j * ja], factor(a[j * ja], b + j * jb, c + j * jc, d + j * jd));
    }
    for (i64 j = 0; j < n_row && !single; j++) {
        i64 in[4] = {j / (n[1] * n[2]), j / n[2] % n[1], j % n[2], 0};
        const REAL *ra = a + place(steps + 4, in), *rb = b + place(steps + 12, in);
        const REAL *rc = c + place(steps + 20, in), *rd = d + place(steps + 28, in);
        REAL part = 0;
        for (i64 i = 0; i < length; i++) part = added(part, ra[i * sa], factor(ra[i * sa], rb + i * sb, rc + i * sc, rd + i * sd));
        total += part;
    }
#else
    __shared__ REAL parts[TEAM], first[WARPS][32][WIDTH + 1], second[KIND == 3 ? WARPS : 1][32][WIDTH + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (i64 j0 = 0; j0 < n_row; j0 += TEAM) {
        const i64 left = n_row - j0;
        const int groups = left > TEAM / 2 ? WARPS : left > TEAM / 4 ? WARPS / 2 : left > 32 ? WARPS / 4 : 1;
        const int beside = WARPS / groups, group = warp % groups;  // strips of the same 32 rows, one for each warp
        const i64 own = j0 + group * 32 + lane;
        const i64 in[4] = {own / (n[1] * n[2]), own / n[2] % n[1], own % n[2], 0};
        const i64 pa = place(steps + 4, in), pb = place(steps + 12, in), pc = place(steps + 20, in), pd = place(steps + 28, in);
        REAL u[WIDTH], vb[WIDTH], vc[WIDTH], vd[WIDTH], part = 0;
        for (i64 i0 = -WIDTH * beside; i0 < length; i0 += WIDTH * beside) {
            const int there = i0 < 0 || threadIdx.x >= 32 * groups ? 0 : (int)min((i64)WIDTH * beside, length - i0);
            const i64 i = i0 + WIDTH * (beside + warp / groups) + lane % WIDTH;  // of the next piece
#pragma unroll
            for (int k = 0; k < WIDTH; k++) {  // 32 / WIDTH rows at a time
                const int r = k * (32 / WIDTH) + lane / WIDTH;
                const i64 ja = __shfl_sync(~0u, pa, r) + i * sa, jb = __shfl_sync(~0u, pb, r) + i * sb;
                const i64 jc = __shfl_sync(~0u, pc, r) + i * sc, jd = __shfl_sync(~0u, pd, r) + i * sd;
                const bool inside = j0 + group * 32 + r < n_row && i < length;
                u[k] = inside ? a[ja] : (REAL)0;
                vb[k] = KIND >= 2 && inside ? b[jb] : (REAL)0;
                vc[k] = KIND == 3 && inside ? c[jc] : (REAL)0;
                vd[k] = KIND == 3 && inside ? d[jd] : (REAL)0;
            }
            for (int s = 0; s * WIDTH < there; s++) {
                const int n_own = min(WIDTH, there - s * WIDTH), slot = s * groups + warp;
#pragma unroll 8
                for (int k = 0; k < n_own; k++) {
                    REAL v = first[slot][lane][k];
                    part = added(part, v, KIND == 3 ? second[slot][lane][k] : v);
                }
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < WIDTH; k++) {
                const int r = k * (32 / WIDTH) + lane / WIDTH;
                const REAL v = factor(u[k], vb + k, vc + k, vd + k);
                first[warp][r][lane % WIDTH] = KIND < 2 || KIND == 3 ? u[k] : v;
                if (KIND == 3) second[warp][r][lane % WIDTH] = v;
            }
            __syncthreads();
        }
        if (threadIdx.x < 32 * groups) parts[threadIdx.x] = part;
        __syncthreads();
        const int there = threadIdx.x ? 0 : (int)min((i64)TEAM, left);
#pragma unroll 8
        for (int j = 0; j < there; j++) total += parts[j];
        __syncthreads();  // the loop over pieces, too, has barriers before parts are written again
    }
    if (threadIdx.x) return;
#endif
    finish(ints, floats, total, y);
#endif
}

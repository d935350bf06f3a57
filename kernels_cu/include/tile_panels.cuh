// The product inside a block of tile_forward: a tile of weights and a tile of inputs in shared memory, filled
// by copies that run while the block works on earlier ones, and the chains of fma over them.
//   The includer sets TRANSPOSED, W_NOISE, TILE_M, TILE_N, TILE_K, RM, RN, VEC, HELPERS, and may set DEEP, AHEAD, LANES_N (tile_forward.cu).
// Inputs lie as (TILE_M, TILE_K); weights as in memory: (TILE_N, TILE_K), with TRANSPOSED (TILE_K, TILE_N).
// Lines along k are padded, so that what a warp reads together lies in different banks. A thread reads four
// steps of the sum of one line at a time, or RN neighbouring lines, four at most.
#pragma once
#include "rk_shared.cuh"
#ifndef DEEP
#define DEEP 1
#endif
#ifndef AHEAD
#define AHEAD 1
#endif
#ifndef LANES_N
#define LANES_N 8
#endif

#define THREADS_M (TILE_M / RM)
#define THREADS_N (TILE_N / RN)
#define WORKERS (THREADS_M * THREADS_N)  // threads that multiply
#define THREADS (WORKERS + HELPERS)
#define COPIERS (HELPERS ? HELPERS : WORKERS)  // the last threads
#define LANES_M (THREADS_M < 32 / LANES_N ? THREADS_M : 32 / LANES_N)
#define UNIT 4
#define ROW_X (TILE_K + UNIT)
#define ROW_W (TRANSPOSED ? TILE_N : TILE_K + UNIT)
#define ROW_Y (TILE_N + 8)
#define SIZE_X (TILE_M * ROW_X)
#define STAGE (SIZE_X + (TRANSPOSED ? TILE_K : TILE_N) * ROW_W)
#define UNROLL (RM * RN == 1 ? TILE_K / (2 * DEEP * UNIT) : 2)  // the latency of one result is that of its chain alone
#define BLOCK_N (!TRANSPOSED ? 1 : RN < UNIT ? RN : UNIT)  // neighbouring lines of a thread

template <int N> struct __align__(4 * N) Vector { float v[N]; };
typedef Vector<UNIT> Unit;

__device__ __forceinline__ int row_of(int r, int tm) { return r * THREADS_M + tm; }
__device__ __forceinline__ int line_of(int q, int tn) { return q / BLOCK_N * (BLOCK_N * THREADS_N) + tn * BLOCK_N + q % BLOCK_N; }

// Where a thread works. Lanes 1 apart share a line of the weights and lanes 2 apart a row of the inputs, and half a
// warp has 8 lines and 2 rows: then shared memory serves halves of a warp at a time, and not quarters.
__device__ __forceinline__ int2 place_of(int t) {
    constexpr int lanes = LANES_M * LANES_N;
    int lane = t % lanes, warp = t / lanes, m = lane / LANES_N, n = lane % LANES_N;
    if (LANES_M % 2 == 0 && LANES_N % 2 == 0) {
        m = lane % 2 + lane / (2 * LANES_N) * 2;
        n = lane / 2 % LANES_N;
    }
    return make_int2(warp / (THREADS_N / LANES_N) * LANES_M + m, warp % (THREADS_N / LANES_N) * LANES_N + n);
}

// Ask for HEIGHT x WIDTH elements at (row0, at0) of a matrix (n_row, n_at), zeros outside; c: which of the COPIERS
// this is. Where all of a line's copies go to one lot of threads, addresses need only be stepped on.
template <int HEIGHT, int WIDTH, int ROW>
__device__ __forceinline__ void fetch(u32 to, const float *matrix, int row0, int n_row, int at0, int n_at, int c) {
    constexpr int across = WIDTH / VEC, n = HEIGHT * across, down = COPIERS / across;
    constexpr bool even = COPIERS % across == 0 && n % COPIERS == 0;
    if (even && at0 + WIDTH <= n_at) {
        int row = c / across, at = c % across * VEC;
        const float *from = matrix + ((i64)(row0 + row) * n_at + at0 + at);
        i64 on = (i64)down * n_at;
        to += (row * ROW + at) * 4;
        if (row0 + HEIGHT <= n_row) {
#pragma unroll
            for (int u = 0; u < n / COPIERS; ++u, from += on) rk_copy<VEC * 4>(to + u * down * ROW * 4, from, VEC * 4);
        } else {
#pragma unroll 4
            for (int u = 0; u < n / COPIERS; ++u, from += on) {
                bool inside = row0 + row + u * down < n_row;
                rk_copy<VEC * 4>(to + u * down * ROW * 4, inside ? from : matrix, inside ? VEC * 4 : 0);
            }
        }
        return;
    }
#pragma unroll 2
    for (int u = 0; u < (n + COPIERS - 1) / COPIERS; ++u) {
        int e = c + u * COPIERS, row = e / across, at = e % across * VEC;
        if (n % COPIERS && e >= n) break;
        bool inside = row0 + row < n_row && at0 + at < n_at;
        const float *from = inside ? matrix + ((i64)(row0 + row) * n_at + at0 + at) : matrix;
        rk_copy<VEC * 4>(to + (row * ROW + at) * 4, from, inside ? VEC * 4 : 0);
    }
}

// Ask for the weights of lines i0.. at k0.. of the sum.
__device__ __forceinline__ void fetch_weights(u32 to, const float *weight, int i0, int n_out, int k0, int n_in, int c) {
    if (TRANSPOSED) fetch<TILE_K, TILE_N, ROW_W>(to, weight, k0, n_in, i0, n_out, c);
    else fetch<TILE_N, TILE_K, ROW_W>(to, weight, i0, n_out, k0, n_in, c);
}

// Ask for inputs of rows that belong to samples[row], or to none below 0.
__device__ __forceinline__ void fetch_rows(u32 to, const float *x, const int *samples, int k0, int n_in, int c) {
    constexpr int across = TILE_K / VEC, n = TILE_M * across;
#pragma unroll 2
    for (int u = 0; u < (n + COPIERS - 1) / COPIERS; ++u) {
        int e = c + u * COPIERS, row = e / across, at = e % across * VEC;
        if (n % COPIERS && e >= n) break;
        bool inside = samples[row] >= 0 && k0 + at < n_in;
        rk_copy<VEC * 4>(to + (row * ROW_X + at) * 4, inside ? x + ((i64)samples[row] * n_in + k0 + at) : x, inside ? VEC * 4 : 0);
    }
}

// What a thread sums: the product, and the variance of reading.
struct Sums {
    float y[RM * RN];
#if W_NOISE
    float read[RM * RN];
#endif
};

__device__ __forceinline__ void clear(Sums &s) {
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) {
        s.y[x] = 0.0f;
#if W_NOISE
        s.read[x] = 0.0f;
#endif
    }
}

__device__ __forceinline__ void add(Sums &total, const Sums &part) {
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) {
        total.y[x] += part.y[x];
#if W_NOISE
        total.read[x] += part.read[x];
#endif
    }
}

__device__ __forceinline__ void step(Sums &s, int x, float v, float w) {
    s.y[x] = __fmaf_rn(w, v, s.y[x]);
#if W_NOISE == 1
    s.read[x] = __fmaf_rn(v, v, s.read[x]);
#elif W_NOISE == 2
    s.read[x] = __fmaf_rn(fabsf(w), v * v, s.read[x]);
#endif
}

// Factors of DEEP units of the sum; with AHEAD on their way to registers while earlier ones are multiplied.
struct Factors {
    float v[RM][DEEP * UNIT], w[RN][DEEP * UNIT];
};

__device__ __forceinline__ void read_factors(Factors &f, const float *xs, const float *ws, int p0) {
#pragma unroll
    for (int p = 0; p < DEEP * UNIT; p += UNIT) {
#pragma unroll
        for (int r = 0; r < RM; ++r) {
            Unit q = *(const Unit *)(xs + row_of(r, 0) * ROW_X + p0 + p);
#pragma unroll
            for (int u = 0; u < UNIT; ++u) f.v[r][p + u] = q.v[u];
        }
#pragma unroll
        for (int c = 0; c < RN; c += BLOCK_N)
            if (!TRANSPOSED) {
                Unit q = *(const Unit *)(ws + line_of(c, 0) * ROW_W + p0 + p);
#pragma unroll
                for (int u = 0; u < UNIT; ++u) f.w[c][p + u] = q.v[u];
            } else {
#pragma unroll
                for (int u = 0; u < UNIT; ++u) {
                    Vector<BLOCK_N> q = *(const Vector<BLOCK_N> *)(ws + (p0 + p + u) * ROW_W + line_of(c, 0));
#pragma unroll
                    for (int z = 0; z < BLOCK_N; ++z) f.w[c + z][p + u] = q.v[z];
                }
            }
    }
}

__device__ __forceinline__ void multiply_factors(Sums &s, const Factors &f) {
#pragma unroll
    for (int p = 0; p < DEEP * UNIT; ++p)
#pragma unroll
        for (int x = 0; x < RM * RN; ++x) step(s, x, f.v[x / RN][p], f.w[x % RN][p]);
}

// TILE_K steps of the sum, or the `left` ones of its end, where a zero more would turn -0 into +0.
__device__ __forceinline__ void multiply(Sums &s, const float *xs, const float *ws, int2 place, int left) {
    xs += row_of(0, place.x) * ROW_X;
    ws += TRANSPOSED ? line_of(0, place.y) : line_of(0, place.y) * ROW_W;
    if (left < TILE_K) {
        for (int p = 0; p < left; ++p)
#pragma unroll
            for (int x = 0; x < RM * RN; ++x) {
                int line = line_of(x % RN, 0);
                step(s, x, xs[row_of(x / RN, 0) * ROW_X + p], ws[TRANSPOSED ? p * ROW_W + line : line * ROW_W + p]);
            }
        return;
    }
    Factors now;
#if AHEAD
    Factors next;
    read_factors(now, xs, ws, 0);
#pragma unroll UNROLL
    for (int p = 0; p < TILE_K; p += 2 * DEEP * UNIT) {
        read_factors(next, xs, ws, p + DEEP * UNIT);
        multiply_factors(s, now);
        if (p + 2 * DEEP * UNIT < TILE_K) read_factors(now, xs, ws, p + 2 * DEEP * UNIT);
        multiply_factors(s, next);
    }
#else
#pragma unroll 2
    for (int p = 0; p < TILE_K; p += DEEP * UNIT) {
        read_factors(now, xs, ws, p);
        multiply_factors(s, now);
    }
#endif
}

// Leave the sums in shared memory: (TILE_M, ROW_Y), then as many of the variances.
__device__ __forceinline__ void leave(const Sums &s, float *to, int2 place) {
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) {
        int at = row_of(x / RN, place.x) * ROW_Y + line_of(x % RN, place.y);
        to[at] = s.y[x];
#if W_NOISE
        to[TILE_M * ROW_Y + at] = s.read[x];
#endif
    }
}

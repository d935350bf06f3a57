// Batch-invariant product c = op(a) op(b), op being the transpose or nothing.
//
//   a (m, k), or with TRANS_A (k, m); b (k, n), or with TRANS_B (n, k); c (m, n)    REAL, C order
//
// One accumulator a result: k ascending, one fma each, from +0; restarted at every multiple of
// RK_SEGMENT, segment results added left to right. So a result depends on its row of a and its column of
// b alone, whatever the batch, the tile or the launch. A launch makes one segment, [first, last) of the sum;
// with ADD, on top of what c holds.
//
// Grid: tiles of TILE_M rows and TILE_N columns, in groups of 8 lines of tiles, so that neighbours share what
// is in L2. A thread owns RM x RN results. Asynchronous copies fill ST stages of TILE_K of the sum. A tile
// lies in shared memory as its matrix does; a thread reads 16 bytes at a time: UNIT steps of the sum of one
// line, or UNIT lines.
//
// Macros: REAL, TRANS_A, TRANS_B, TILE_M, TILE_N, TILE_K, RM, RN (RM, RN multiples of UNIT for a matrix whose
//         lines of the result lie along memory), ST, VEC (elements a copy: 1, or UNIT, which rows have to be
//         a multiple of), ADD, DMMA (double: on tensor cores, which make the same chain; four warps, a quarter
//         of the tile each; TILE_K % 16 == 0, RM = TILE_M / 16, RN = TILE_N / 8).
// mirror: rpukit/gemm/_mirror/real.py::det_gemm
// op: rpukit.gemm.det_gemm
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: TRANS_A=1
// check: TRANS_B=1
// check: VEC=4
// check: VEC=4 ADD=1 TRANS_B=1
// check: TILE_M=4 TILE_N=32 TILE_K=64 RM=1 RN=4 ST=10 VEC=4
// check: TILE_M=32 TILE_N=32 TILE_K=32 RM=4 RN=4 ST=6 VEC=4
// check: REAL=double TILE_M=64 TILE_N=64 RM=4 RN=8 ST=4 VEC=2 DMMA=1
// check: REAL=double TILE_M=128 TILE_N=64 RM=8 RN=8 ST=3 VEC=2 DMMA=1 TRANS_A=1 TRANS_B=1
// check: REAL=double TILE_M=64 TILE_N=64 RM=4 RN=4 ST=4 VEC=2
// source: docs/semantics.md, section 6.
#include "rk_chain.cuh"
#include "rk_dmma.cuh"
#include "rk_shared.cuh"

#ifndef REAL
#define REAL float
#endif
#ifndef TRANS_A
#define TRANS_A 0
#endif
#ifndef TRANS_B
#define TRANS_B 0
#endif
#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef TILE_K
#define TILE_K 16
#endif
#ifndef RM
#define RM 8
#endif
#ifndef RN
#define RN 8
#endif
#ifndef ST
#define ST 4
#endif
#ifndef VEC
#define VEC 1
#endif
#ifndef ADD
#define ADD 0
#endif
#ifndef DMMA
#define DMMA 0
#endif
#define THREADS_M (TILE_M / RM)
#define THREADS_N (TILE_N / RN)
#define THREADS (THREADS_M * THREADS_N)
#define LANES_N (THREADS_N < 8 ? THREADS_N : 8)  // of a warp along n
#define LANES_M (THREADS_M < 32 / LANES_N ? THREADS_M : 32 / LANES_N)
#define UNIT (16 / (int)sizeof(REAL))
// Rows in shared memory; padding keeps what is read together in different banks.
#define ROW(ALONG, LINES) (ALONG ? LINES + (DMMA ? 4 : 0) : TILE_K + (DMMA ? 4 : UNIT))
#define SIZE(ALONG, LINES) ((ALONG ? TILE_K : LINES) * ROW(ALONG, LINES))
#define STAGE (SIZE(TRANS_A, TILE_M) + SIZE(!TRANS_B, TILE_N))

__device__ __forceinline__ float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fma_rn(double a, double b, double c) { return __fma_rn(a, b, c); }
struct __align__(16) Unit { REAL v[UNIT]; };

// Ask for LINES x TILE_K at (line0, k0); the matrix is (n_line, n_k), or with ALONG (n_k, n_line).
template <int LINES, int ALONG> __device__ __forceinline__ void fetch(u32 to, const REAL *x, int line0, int n_line, int k0, int last, int n_k) {
    constexpr int across = (ALONG ? LINES : TILE_K) / VEC, n = LINES * TILE_K / VEC;
#pragma unroll
    for (int u = 0; u < (n + THREADS - 1) / THREADS; ++u) {
        int e = threadIdx.x + u * THREADS, row = e / across, at = e % across * VEC;
        if (n % THREADS && e >= n) break;
        int line = line0 + (ALONG ? at : row), p = k0 + (ALONG ? row : at);
        bool inside = line < n_line && p < last;
        const REAL *from = inside ? x + (ALONG ? (u64)p * n_line + line : (u64)line * n_k + p) : x;
        rk_copy<VEC * (int)sizeof(REAL)>(to + (row * ROW(ALONG, LINES) + at) * (int)sizeof(REAL), from, inside ? VEC * (int)sizeof(REAL) : 0);
    }
}

// Line r of a thread's R: neighbours where they are read together, far apart where each is read along k.
template <int R, int ALONG, int N_THREAD> __device__ __forceinline__ int line_of(int r, int t) {
    return ALONG && R % UNIT == 0 ? r / UNIT * (UNIT * N_THREAD) + t * UNIT + r % UNIT : r * N_THREAD + t;
}

// UNIT steps of the sum of a thread's lines.
template <int R, int LINES, int ALONG, int N_THREAD>
__device__ __forceinline__ void read_lines(REAL (&v)[R][UNIT], const REAL *tile, int p, int t) {
    if (!ALONG) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            Unit q = *(const Unit *)(tile + line_of<R, ALONG, N_THREAD>(r, t) * ROW(ALONG, LINES) + p);
#pragma unroll
            for (int u = 0; u < UNIT; ++u) v[r][u] = q.v[u];
        }
    } else if (R % UNIT == 0) {
#pragma unroll
        for (int u = 0; u < UNIT; ++u)
#pragma unroll
            for (int r = 0; r < R; r += UNIT) {
                Unit q = *(const Unit *)(tile + (p + u) * LINES + line_of<R, ALONG, N_THREAD>(r, t));
#pragma unroll
                for (int w = 0; w < UNIT; ++w) v[r + (R % UNIT ? 0 : w)][u] = q.v[w];
            }
    } else {
#pragma unroll
        for (int u = 0; u < UNIT; ++u)
#pragma unroll
            for (int r = 0; r < R; ++r) v[r][u] = tile[(p + u) * LINES + line_of<R, ALONG, N_THREAD>(r, t)];
    }
}

__device__ __forceinline__ int row_of(int r, int tm) { return DMMA ? tm + r / 2 * 16 + r % 2 * 8 : line_of<RM, TRANS_A, THREADS_M>(r, tm); }
__device__ __forceinline__ int column_of(int q, int tn) { return DMMA ? tn + q / 2 * 8 + q % 2 : line_of<RN, !TRANS_B, THREADS_N>(q, tn); }
template <int LINES, int ALONG> __device__ __forceinline__ REAL element(const REAL *tile, int line, int p) {
    return tile[ALONG ? p * ROW(1, LINES) + line : line * ROW(0, LINES) + p];
}

// TILE_K steps of the sum.
#if DMMA
__device__ __forceinline__ void multiply(double (&acc)[RM][RN], const double *as, const double *bs, int tm, int tn) {
    int lane = threadIdx.x % 32, line = tn - lane % 4 * 2 + lane / 4;
#pragma unroll
    for (int p = lane % 4; p < TILE_K; p += 16) {
        double a[RM / 2][8], b[RN / 2][4];
#pragma unroll
        for (int x = 0; x < RM / 2 * 8; ++x) a[x / 8][x % 8] = element<TILE_M, TRANS_A>(as, row_of(x / 8 * 2 + x % 2, tm), p + x % 8 / 2 * 4);
#pragma unroll
        for (int x = 0; x < RN / 2 * 4; ++x) b[x / 4][x % 4] = element<TILE_N, !TRANS_B>(bs, line + x / 4 * 8, p + x % 4 * 4);
#pragma unroll
        for (int x = 0; x < RM * RN / 4; ++x) {
            int i = x / (RN / 2) * 2, j = x % (RN / 2) * 2;
            double c[4] = {acc[i][j], acc[i][j + 1], acc[i + 1][j], acc[i + 1][j + 1]};
            rk_dmma(c, a[i / 2], b[j / 2]);
            acc[i][j] = c[0], acc[i][j + 1] = c[1], acc[i + 1][j] = c[2], acc[i + 1][j + 1] = c[3];
        }
    }
}
#else
__device__ __forceinline__ void multiply(REAL (&acc)[RM][RN], const REAL *as, const REAL *bs, int tm, int tn) {
    REAL ar[RM][UNIT], br[RN][UNIT];
#pragma unroll
    for (int p = 0; p < TILE_K; p += UNIT) {
        read_lines<RM, TILE_M, TRANS_A, THREADS_M>(ar, as, p, tm);
        read_lines<RN, TILE_N, !TRANS_B, THREADS_N>(br, bs, p, tn);
#pragma unroll
        for (int u = 0; u < UNIT; ++u)
#pragma unroll
            for (int x = 0; x < RM * RN; ++x) acc[x / RN][x % RN] = fma_rn(ar[x / RN][u], br[x % RN][u], acc[x / RN][x % RN]);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
det_gemm(int m, int n, int k, int first, int last, const REAL *a, const REAL *b, REAL *c) {
    extern __shared__ __align__(16) unsigned char raw[];
    const REAL *tiles = (const REAL *)raw;
    u32 shared = rk_shared_address(raw);
    int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N, whole = 8 * tiles_n;
    int first_m = blockIdx.x / whole * 8, lines = min(8, tiles_m - first_m), rest = blockIdx.x % whole;
    int row0 = (first_m + rest % lines) * TILE_M, col0 = rest / lines * TILE_N;
    int lane = threadIdx.x % (LANES_M * LANES_N), warp = threadIdx.x / (LANES_M * LANES_N);
    int tn = warp % (THREADS_N / LANES_N) * LANES_N + lane % LANES_N;
    int tm = warp / (THREADS_N / LANES_N) * LANES_M + lane / LANES_N;
    if (DMMA) {
        lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        tm = warp / 2 * (TILE_M / 2) + lane / 4, tn = warp % 2 * (TILE_N / 2) + lane % 4 * 2;
    }
    REAL acc[RM][RN];
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) acc[x / RN][x % RN] = 0;
    int n_step = (last - first + TILE_K - 1) / TILE_K;
    auto ask = [&](int step) {
        if (step < n_step) {
            u32 to = shared + step % ST * STAGE * (int)sizeof(REAL);
            int k0 = first + step * TILE_K;
            fetch<TILE_M, TRANS_A>(to, a, row0, m, k0, last, k);
            fetch<TILE_N, !TRANS_B>(to + SIZE(TRANS_A, TILE_M) * (int)sizeof(REAL), b, col0, n, k0, last, k);
        }
        rk_copies_end();
    };
    for (int s = 0; s < ST - 1; ++s) ask(s);
    for (int step = 0; step < n_step; ++step) {
        rk_copies_left<ST - 2>();
        __syncthreads();
        ask(step + ST - 1);
        const REAL *as = tiles + step % ST * STAGE, *bs = as + SIZE(TRANS_A, TILE_M);
        int left = last - first - step * TILE_K;
        if (left >= TILE_K) {
            multiply(acc, as, bs, tm, tn);
        } else {  // the end of the sum: a zero more would turn -0 into +0
            for (int p = 0; p < left; ++p) {
                REAL ar[RM], br[RN];
#pragma unroll
                for (int r = 0; r < RM; ++r) ar[r] = element<TILE_M, TRANS_A>(as, row_of(r, tm), p);
#pragma unroll
                for (int r = 0; r < RN; ++r) br[r] = element<TILE_N, !TRANS_B>(bs, column_of(r, tn), p);
#pragma unroll
                for (int x = 0; x < RM * RN; ++x) acc[x / RN][x % RN] = fma_rn(ar[x / RN], br[x % RN], acc[x / RN][x % RN]);
            }
        }
    }
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) {
        int i = row0 + row_of(x / RN, tm), j = col0 + column_of(x % RN, tn);
        if (i < m && j < n) {
            REAL *at = c + (u64)i * n + j;
            *at = ADD ? *at + acc[x / RN][x % RN] : acc[x / RN][x % RN];
        }
    }
}

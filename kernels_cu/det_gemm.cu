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
//         a multiple of), ADD.
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
// check: REAL=double TILE_M=64 TILE_N=64 RM=4 RN=4 ST=4 VEC=2
// source: docs/semantics.md, section 6.
#include "rk_chain.cuh"
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
#define THREADS_M (TILE_M / RM)
#define THREADS_N (TILE_N / RN)
#define THREADS (THREADS_M * THREADS_N)
#define LANES_N (THREADS_N < 8 ? THREADS_N : 8)  // of a warp along n
#define LANES_M (THREADS_M < 32 / LANES_N ? THREADS_M : 32 / LANES_N)
#define UNIT (16 / (int)sizeof(REAL))
#define ROW(ALONG, LINES) (ALONG ? LINES : TILE_K + UNIT)  // a unit of padding keeps lines in other banks
#define SIZE(ALONG, LINES) (ALONG ? TILE_K * LINES : LINES * (TILE_K + UNIT))
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
        REAL ar[RM][UNIT], br[RN][UNIT];
        if (left >= TILE_K) {
#pragma unroll
            for (int p = 0; p < TILE_K; p += UNIT) {
                read_lines<RM, TILE_M, TRANS_A, THREADS_M>(ar, as, p, tm);
                read_lines<RN, TILE_N, !TRANS_B, THREADS_N>(br, bs, p, tn);
#pragma unroll
                for (int u = 0; u < UNIT; ++u)
#pragma unroll
                    for (int x = 0; x < RM * RN; ++x) acc[x / RN][x % RN] = fma_rn(ar[x / RN][u], br[x % RN][u], acc[x / RN][x % RN]);
            }
        } else {  // the end of the sum: a zero more would turn -0 into +0
            for (int p = 0; p < left; p += UNIT) {
                read_lines<RM, TILE_M, TRANS_A, THREADS_M>(ar, as, p, tm);
                read_lines<RN, TILE_N, !TRANS_B, THREADS_N>(br, bs, p, tn);
#pragma unroll
                for (int u = 0; u < UNIT; ++u)
                    if (p + u < left)
#pragma unroll
                        for (int x = 0; x < RM * RN; ++x) acc[x / RN][x % RN] = fma_rn(ar[x / RN][u], br[x % RN][u], acc[x / RN][x % RN]);
            }
        }
    }
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) {
        int i = row0 + line_of<RM, TRANS_A, THREADS_M>(x / RN, tm), j = col0 + line_of<RN, !TRANS_B, THREADS_N>(x % RN, tn);
        if (i < m && j < n) {
            REAL *at = c + (u64)i * n + j;
            *at = ADD ? *at + acc[x / RN][x % RN] : acc[x / RN][x % RN];
        }
    }
}

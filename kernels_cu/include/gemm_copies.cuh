// Loads of det_gemm.cu's factors into shared memory. Uses its macros.
#pragma once
#include "rk_shared.cuh"

__device__ __forceinline__ float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fma_rn(double a, double b, double c) { return __fma_rn(a, b, c); }
// N neighbours in memory, which are moved together.
template <int N> struct __align__(N * sizeof(REAL)) Some { REAL v[N]; };
using Unit = Some<UNIT>;

#define COPY_THREADS (COPIERS ? 32 : THREADS)  // of a stage
__device__ __forceinline__ int copy_thread() { return COPIERS ? threadIdx.x % 32 : threadIdx.x; }

// The copies of a thread for a stage: LINES x TILE_K at (line0, k0) of a matrix (n_line, n_k), or with ALONG (n_k, n_line). So many
// neighbouring threads copy a row that all of them do; a transposing copy of 8 x 4 elements goes to different banks. CACHED: see rk_copy.
template <int LINES, int ALONG, int VEC, bool CACHED> struct Copies {
    static constexpr bool turned = TURN && (COPIERS ? ALONG : !ALONG);
    static constexpr int vec = turned ? 1 : VEC, rows = ALONG ? TILE_K : LINES, across = (ALONG ? LINES : TILE_K) / vec;
    static constexpr int even = across & -across, most = turned ? 8 : COPY_THREADS & -COPY_THREADS;
    static constexpr int wide = even < most ? even : most, turns = across / wide, apart = COPY_THREADS / wide;  // threads a row; rows
    static constexpr int count = (rows + apart - 1) / apart * turns, size = (int)sizeof(REAL), row_size = ROW(ALONG, LINES) * size;
    static constexpr bool asks = !(DMMA && TILE_M * TILE_N >= 128 * 128);  // for a line before it is copied; registers of such tiles would spill
    static_assert(COPY_THREADS % wide == 0, "threads copy whole rows");
    const REAL *from;
    int stride;
    u32 to;
    int left, p;  // lines of the matrix from the first one of this thread on; where its steps begin

    __device__ __forceinline__ Copies(u32 stage, const REAL *x, int line0, int n_line, int k0, int n_k) {
        int row = copy_thread() / wide, at = copy_thread() % wide * vec;
        int line = line0 + (ALONG ? at : row);
        left = n_line - line, p = k0 + (ALONG ? row : at);
        stride = ALONG ? n_line : n_k;
        from = x + (ALONG ? (i64)p * stride + line : (i64)line * stride + p);
        to = stage + (turned ? at * row_size + row * size : row * row_size + at * size);
    }
    // The same copies to a stage that is `further` bytes on.
    __device__ __forceinline__ Copies to_stage(u32 further) const {
        Copies moved = *this;
        moved.to += further;
        return moved;
    }
    // Those of the next steps of the sum; what `all` needs besides is not kept.
    __device__ __forceinline__ void next_steps() { from += ALONG ? (i64)stride * TILE_K : TILE_K; }
    static __device__ __forceinline__ int row(int u) { return u / turns * apart; }
    static __device__ __forceinline__ int at(int u) { return u % turns * wide * vec; }
    static __device__ __forceinline__ bool copies(int u) { return rows % apart == 0 || copy_thread() / wide + row(u) < rows; }
    // Copies number u to u + N - 1, which follow those already requested, by `copy(number)`.
    template <int N, class Copy> __device__ __forceinline__ void next(int u, Copy copy) {
        constexpr int unroll = COPIERS && N > 8 ? 8 : N;  // more addresses would take registers
#pragma unroll unroll
        for (int v = 0; v < N; ++v) {
            if (copies(u + v)) copy(u + v);
            int further = row(u + v + 1) - row(u + v), steps = at(u + v + 1) - at(u + v);
            from += (i64)stride * further + steps;
            to += turned ? further * size + steps * row_size : further * row_size + steps * size;
        }
    }
    // The same where all steps exist, and all lines unless it `asks`; none if `left` is 0. What is in the place of a missing line is
    // never used.
    template <int N> __device__ __forceinline__ void whole(int u) {
        next<N>(u, [&](int v) {
            if ((asks ? ALONG ? at(v) : row(v) : 0) < left) rk_copy<vec * size, CACHED>(to, from, vec * size);
        });
    }
    // Part `number` of a stage, all steps of which exist.
    template <int PARTS = TILE_K / UNIT> __device__ __forceinline__ void part(int number) {
        constexpr int each = (count + PARTS - 1) / PARTS;
        static_assert(count % each == 0, "equal parts");
        if (number * each < count) whole<each>(number * each);
    }
    // Those before step p: many small ones in groups, of which each takes three more instructions.
    __device__ __forceinline__ void at_step(int p) {
        constexpr int apart = vec < UNIT ? UNIT : 1;
        if (p % apart == 0) part<TILE_K / apart>(p / apart);
    }
    // A stage, all steps of which exist.
    __device__ __forceinline__ void every() { whole<count>(0); }
    // What exists of a stage, and 0 beyond the end of the sum.
    __device__ __forceinline__ void all(const REAL *x, int last) {
        next<count>(0, [&](int u) {
            bool there = (ALONG ? at(u) : row(u)) < left && p + (ALONG ? row(u) : at(u)) < last;
            rk_copy<vec * size, CACHED>(to, there ? from : x, there ? vec * size : 0);
        });
    }
};

using CopiesA = Copies<TILE_M, TRANS_A, VEC_A, BY_CACHE % 2>;
using CopiesB = Copies<TILE_N, !TRANS_B, VEC_B, BY_CACHE / 2>;

// Segments of the sums of det_gemm.cu: which ones a block makes, and how their results are added, left to right. A block makes
// every CLUSTER-th segment. Uses its macros, row_of, column_of.
#pragma once
#include "rk_cluster.cuh"
#include "gemm_turns.cuh"

#define RESULTS (TILE_M * TILE_N)
#define SHARE (RESULTS / CLUSTER)  // results of a tile that a block adds
static_assert((CLUSTER == 1 && !TURNS) || ADD < 2, "one segment");
static_assert(!TURNS || (CLUSTER == 1 && !ROOM), "blocks share a tile in one way");

// Where the stage after that at `at` begins.
__device__ __forceinline__ int next_stage(int at, int segment, const Sharing &share) {
    at += TILE_K;
    return (CLUSTER > 1 || TURNS) && !(at & (segment - 1)) ? at + (share.parts - 1) * segment : at;
}
// Whether a segment ends with the stage at `at`.
__device__ __forceinline__ bool ends_segment(int at, int segment, int k) { return !((at + TILE_K) & (segment - 1)) || at + TILE_K >= k; }

#define LANES_M (THREADS_M < 4 ? THREADS_M : 4)
#define LANES_N (32 / LANES_M)
// Place of a thread's results in the tile. A warp has 4 x 8 threads, in pairs that read the same of b; in a tile of one row 1 x 32; or the
// places of a tensor core.
struct Place {
    int m, n;
    __device__ __forceinline__ explicit Place(int thread) {
        int lane = thread % 32, warp = thread / 32, pair = LANES_M < 2 ? 1 : 2;
        n = DMMA ? warp % (THREADS_N / 4) * (RN * 4) + lane % 4 * 2 : warp % (THREADS_N / LANES_N) * LANES_N + lane / pair % LANES_N;
        m = DMMA ? warp / (THREADS_N / 4) * (RM * 8) + lane / 4 : warp / (THREADS_N / LANES_N) * 4 + lane / (2 * LANES_N) * 2 + lane % pair;
    }
};

struct Results {
    REAL *c;
    int m, n, row0, col0;
    // Where result x of a thread goes; null beyond the matrix.
    __device__ __forceinline__ REAL *at(Place place, int x) const {
        int i = row0 + row_of(x / RN, place.m), j = col0 + column_of(x % RN, place.n);
        return i < m && j < n ? c + (u64)i * n + j : nullptr;
    }
    // Number of results from x on in its row of the matrix.
    __device__ __forceinline__ int left(Place place, int x) const { return n - col0 - column_of(x % RN, place.n); }
};

#if defined(RK_ON_CPU) || __CUDA_ARCH__ >= 900
#define AT_A_TIME (RESULTS == 128 * 128 ? 64 : 128)    // bytes of results that are loaded together
#define FULL (DMMA && RESULTS == 128 * 128 && !HELD)  // of registers: results that are moved together would spill
#else  // fewer registers are free
#define AT_A_TIME 16
#define FULL (RM * RN >= 64)
#endif
#include "gemm_rows.cuh"
#if CLUSTER == 1
// Write results, N neighbours at a time; `adds`: to what is there; with VEC_C they all exist or none.
template <int N> __device__ __forceinline__ void give(REAL (&acc)[RM][RN], const Results &to, Place place, bool adds) {
    constexpr bool wide = VEC_C % N == 0;
    constexpr int batch = together_of(RM * RN, AT_A_TIME / (int)sizeof(REAL));
#pragma unroll
    for (int x0 = 0; x0 < RM * RN; x0 += batch) {
        Some<N> before[batch / N];
        hold(acc);
        if (adds)
#pragma unroll
            for (int x = x0; x < x0 + batch; x += N) {
                const REAL *at = to.at(place, x);
                Some<N> &sum = before[(x - x0) / N];
                sum = Some<N>{};
                if (at && wide) sum = *(const Some<N> *)at;
                if (at && !wide)
#pragma unroll
                    for (int u = 0; u < N; ++u)
                        if (u < to.left(place, x)) sum.v[u] = at[u];
            }
#pragma unroll
        for (int x = x0; x < x0 + batch; x += N) {
            REAL *at = to.at(place, x);
            Some<N> made;
#pragma unroll
            for (int u = 0; u < N; ++u) {
                REAL v = ADD == 3 ? (REAL)(ALPHA) * acc[x / RN][x % RN + u] : acc[x / RN][x % RN + u];
                made.v[u] = adds ? before[(x - x0) / N].v[u] + v : v;
            }
            if (at && wide) *(Some<N> *)at = made;
            if (at && !wide)
#pragma unroll
                for (int u = 0; u < N; ++u)
                    if (u < to.left(place, x)) at[u] = made.v[u];
        }
    }
}
#if ROOM && (RM * RN < 64 || defined(RK_ON_CPU) || __CUDA_ARCH__ < 1000)
#define HELD 1
#else
#define HELD 0  // from sm_100 on, registers of large tiles would spill
#endif
__device__ __forceinline__ void write_results(REAL (&acc)[RM][RN], const Results &to, Place place, bool adds) {
#if BY_LANES
    if constexpr (sizeof(REAL) == 4) return write_by_lanes(acc, to, place, adds);
#endif
    constexpr int together = !FULL && (DMMA || (ACROSS_B && RN % UNIT == 0)) ? UNIT : 1;  // neighbours of a thread
    give<together>(acc, to, place, adds);
}
// Add a segment to those before: they are in `room` if HELD, else in c.
__device__ __forceinline__ void add_segment(REAL (&acc)[RM][RN], REAL *room, const Results &to, bool first, bool last) {
    int thread = anew(threadIdx.x);
    Place place(thread);
#if BY_ROWS
    REAL *stages = room - (ROOM ? ST * STAGE : 0);
#endif
#if HELD
    room += thread;
    if (!first)
#pragma unroll
        for (int x = 0; x < RM * RN; ++x) {
            if (x % 16 == 0) hold(acc);  // no more at a time than registers are free for
            acc[x / RN][x % RN] = room[x * THREADS] + acc[x / RN][x % RN];
        }
    if (!last) {
#pragma unroll
        for (int x = 0; x < RM * RN; ++x) room[x * THREADS] = acc[x / RN][x % RN];
        return;
    }
#endif
    bool adds = ADD % 2 || (!HELD && !first);
#if BY_ROWS
    if (ADD > 1 || last) return write_rows(acc, stages, to, adds);
#endif
    write_results(acc, to, place, adds);
}
#if TURNS > 1
#include "gemm_sums.cuh"
#endif
#else
// Add the segments that the blocks of a cluster have made in this round to those before, which are in c. Each block adds
// its share of the results. `there`: this block has made one. Copying threads come along.
__device__ __forceinline__ void add_round(const REAL (&acc)[RM][RN], REAL *room, const Results &to, bool there, int round, int n_segment) {
    constexpr int turns = (SHARE + THREADS - 1) / THREADS, batch = together_of(turns, 32 / CLUSTER);
    static_assert(SHARE % THREADS == 0 || SHARE < THREADS, "equal turns");
    int thread = threadIdx.x, rank = blockIdx.x % CLUSTER, n_part = min(CLUSTER, n_segment - round * CLUSTER);
    if (!ROOM) __syncthreads();    // the stages are read
    if (round) rk_cluster_wait();  // what was in `room` is read
    if (thread < THREADS && there)
#pragma unroll
        for (int x = 0; x < RM * RN; ++x) room[x * THREADS + thread] = acc[x / RN][x % RN];
    rk_cluster_arrive();
    rk_cluster_wait();
    if (thread < THREADS && thread < SHARE)
#pragma unroll 1
        for (int y = 0; y < turns; y += batch) {
            REAL before[batch], parts[batch][CLUSTER];
            REAL *at[batch];
#pragma unroll
            for (int z = 0; z < batch; ++z) {
                int from = rank * SHARE + (y + z) * THREADS + thread;
                at[z] = to.at(Place(from % THREADS), from / THREADS);
                before[z] = (round || ADD % 2) && at[z] ? *at[z] : (REAL)0;
#pragma unroll
                for (int r = 0; r < CLUSTER; ++r) parts[z][r] = r < n_part ? rk_cluster_load(room + from, r) : (REAL)0;
            }
#pragma unroll
            for (int z = 0; z < batch; ++z) {
                REAL v = round || ADD % 2 ? before[z] + parts[z][0] : parts[z][0];
#pragma unroll
                for (int r = 1; r < CLUSTER; ++r)
                    if (r < n_part) v = v + parts[z][r];
                if (at[z]) *at[z] = v;
            }
        }
    rk_cluster_arrive();
}
// The rounds in which a block has made no segment, and the end of the last one.
__device__ __forceinline__ void end_rounds(const REAL (&acc)[RM][RN], REAL *room, const Results &to, int round, int n_segment) {
    if (round * CLUSTER < n_segment) add_round(acc, room, to, false, round, n_segment);
    rk_cluster_wait();
}
#endif

// The end of the segment whose last stage is that at `at`: add it, and begin another one.
__device__ __forceinline__ void add_made(REAL (&acc)[RM][RN], REAL *room, const Results &to, int at, int round, int n_segment, int segment,
                                         int k, const Sharing &share) {
    if (BY_ROWS && !BY_SHARES && (TURNS || at + TILE_K >= k)) __syncthreads();  // the stages are read
#if TURNS > 1
    add_all(acc, room, to, share, at / segment);
#elif TURNS
    int number = at / segment;
    if (number) share.wait(number);
    add_segment(acc, room, to, number == 0, true);
    share.pass(number + 1 < n_segment ? number + 1 : 0);
#elif CLUSTER == 1
    add_segment(acc, room, to, at < segment, at + TILE_K >= k);
#else
    add_round(acc, room, to, true, round, n_segment);
#endif
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) acc[x / RN][x % RN] = 0;
}

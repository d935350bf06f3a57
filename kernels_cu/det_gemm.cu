// Batch-invariant matrix product in float32 and float64: c = op(a) op(b), op being the transpose or nothing.
//
//   a (m, k), or with TRANS_A (k, m); b (k, n), or with TRANS_B (n, k); c (m, n)    REAL, C order
//
// One accumulator a result: k ascending, one fma each, from +0; restarted at every multiple of `segment`, a power of two and
// multiple of TILE_K; segment results added left to right. So a result depends on its row of a and its column of b alone,
// whatever the batch, the tile or the launch. ADD 1 adds them to c; of a sum of one segment, ADD 2 continues the chains held in
// c, and ADD 3 adds ALPHA times it to c.
//
// Grid: tiles of TILE_M rows and TILE_N columns, in groups of 8 lines of tiles, so that neighbours share what is in L2. The
// CLUSTER blocks of a tile make different segments, and each adds a share of the results (gemm_segments.cuh); or with TURNS a block
// makes one segment, and blocks add theirs to c one after the other, or the last ones add all (gemm_turns.cuh). A launch may begin
// while the one before ends. A thread owns RM x RN results. Asynchronous copies fill ST stages of TILE_K of the sum, in between the
// multiplications; the end of a sum takes the same way, without the steps that are missing. A tile lies in shared memory as its matrix does, or with
// TURN by lines; a thread reads 16 bytes at a time: UNIT steps of the sum of one line, or UNIT lines. By lines, fewer registers
// hold what is read ahead: a large tile's operands are in different banks, and are read a step before they are used, across stages
// (with PIPE those of other tiles, UNIT steps before). A stage's steps are written out; a multiprocessor keeps 32 KB of instructions (TILE_K RM RN < 2048).
//
// Macros: REAL, TRANS_A, TRANS_B, TILE_M, TILE_N, TILE_K, RM, RN, ST, VEC (elements a copy: 1, or UNIT, which rows have to be a
//         multiple of; of c: results that are stored together), TURN, ADD, ALPHA, DMMA (double: on tensor cores, which make the same
//         chain; TILE_K % 16 == 0, RM = TILE_M / 16 or TILE_M / 8: two lines of warps or one; RN even, of TILE_N 4 RN or more; with
//         COPIERS TILE_K % 32 == 0), COPIERS (threads that copy, gemm_few.cuh; with TURN they transpose matrices whose lines lie along
//         memory), CLUSTER (1, 2, 4, 8), ROOM (1: sums of segments wait in shared memory, beside the stages; in their place if
//         CLUSTER > 1, which needs that there are not more segments), TURNS (1: as many blocks a tile as segments, ADD 0 or 1; `turns`
//         (1 + warps that multiply of all tiles) zeros; 2: so, too, with `segments` (tiles, segments, TILE_M x TILE_N); 3: so, too,
//         RM RN % 4 == 0, and two zeros a warp), BLOCKS (of a multiprocessor, for which there are registers), PIPE (1: operands
//         are read across stages, for few blocks), BY_CACHE (1: of a, + 2: of b: copies of 16 bytes through the L1 cache), STREAM (1: equal shares
//         for blocks, none shorter than a segment, gemm_shares.cuh; with several TURNS is 2 or 3; for each block `turns` has a zero a warp more, `segments` a tile).
// mirror: rpukit/gemm/_mirror/real.py::det_gemm
// op: rpukit.gemm.det_gemm
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: TRANS_B=1
// check: TILE_K=8 RM=16 ST=8 VEC_A=4 VEC_B=4 VEC_C=4 TURN=1 ADD=1 TRANS_B=1
// check: TILE_K=8 RM=16 ST=8 VEC_A=4 VEC_B=4 TURN=1 ADD=2
// check: TILE_K=8 RM=16 ST=8 VEC_A=4 VEC_B=4 TURN=1 ADD=3 ALPHA=-0x1.8p-7 TRANS_A=1
// check: TILE_M=4 TILE_N=16 TILE_K=128 RM=1 RN=1 ST=7
// check: TILE_M=40 TILE_N=64 TILE_K=32 RM=5 RN=4 VEC_A=4 VEC_B=2 PIPE=1 TURNS=3
// check: REAL=double TILE_M=64 TILE_N=64 RM=4 RN=8 ST=4 VEC_A=2 VEC_B=2 DMMA=1
// check: REAL=double TILE_M=128 TILE_N=64 RM=8 RN=8 ST=3 VEC_A=2 VEC_B=2 DMMA=1 TRANS_A=1 TRANS_B=1
// check: REAL=double TILE_M=128 TILE_N=128 TILE_K=32 RM=8 RN=8 ST=3 VEC_A=2 VEC_B=2 VEC_C=2 DMMA=1
// check: REAL=double TILE_M=64 TILE_N=64 RM=4 RN=4 ST=4 VEC_A=2 VEC_B=1
// check: TILE_M=4 TILE_N=16 TILE_K=128 RM=1 RN=1 ST=7 COPIERS=64 VEC_A=4 VEC_B=1
// check: TILE_M=8 TILE_N=32 TILE_K=64 RM=2 RN=1 ST=5 COPIERS=64 CLUSTER=8 TRANS_B=1 VEC_A=2 VEC_B=4
// check: TILE_M=4 TILE_N=8 TILE_K=128 RM=1 RN=1 ST=8 COPIERS=64 VEC_A=4 VEC_B=4 TURN=1
// check: TILE_M=1 TILE_N=32 TILE_K=64 RM=1 RN=1 ST=6 COPIERS=128 VEC_A=4 VEC_B=4 TRANS_B=1 TURNS=2
// check: TILE_M=8 TILE_N=16 TILE_K=128 RM=2 RN=1 ST=7 COPIERS=64 VEC_A=1 VEC_B=1 TURN=1 TRANS_A=1 TURNS=2
// check: TILE_M=16 TILE_N=16 TILE_K=64 RM=2 RN=2 ST=8 COPIERS=64 VEC_A=4 VEC_B=4
// check: REAL=double TILE_M=16 TILE_N=8 TILE_K=128 RM=2 RN=2 ST=6 COPIERS=64 DMMA=1 VEC_A=2 VEC_B=2
// check: REAL=double TILE_M=16 TILE_N=32 TILE_K=32 RM=2 RN=2 ST=5 COPIERS=64 DMMA=1 TRANS_A=1
// check: REAL=double TILE_M=64 TILE_N=64 TILE_K=32 RM=4 RN=8 ST=4 COPIERS=64 DMMA=1 VEC_B=2 VEC_C=2
// check: TILE_M=64 VEC_A=4 VEC_B=4 VEC_C=4 TURN=1 TRANS_B=1 ROOM=1 ST=3
// check: TILE_N=64 VEC_A=4 TURN=1 ROOM=1 CLUSTER=2 ST=3
// check: REAL=double TILE_M=64 TILE_N=64 RM=4 RN=8 ST=4 VEC_A=2 VEC_B=2 DMMA=1 ROOM=1 CLUSTER=4
// check: REAL=double TILE_M=96 TILE_N=128 TILE_K=32 RM=6 RN=8 ST=3 VEC_A=2 VEC_B=2 VEC_C=2 DMMA=1 TURNS=1 TRANS_B=1
// check: TILE_M=96 TILE_N=64 RM=12 RN=4 TURN=1 TURNS=1 TRANS_B=1
// check: TILE_M=64 TILE_N=64 TILE_K=32 RN=4 ST=3 VEC_A=4 VEC_B=4 TURN=1 TURNS=2
// check: REAL=double TILE_M=80 TILE_N=64 RM=10 RN=4 VEC_A=2 VEC_B=2 DMMA=1 TURNS=1
// check: REAL=double TILE_M=48 TILE_N=64 TILE_K=32 RM=6 RN=4 ST=3 VEC_A=2 VEC_B=2 DMMA=1 TURNS=2 TRANS_B=1 BY_CACHE=3
// check: REAL=double TILE_M=32 TILE_N=64 RM=2 RN=8 ST=5 VEC_A=2 VEC_B=2 DMMA=1 ROOM=1 TRANS_A=1
// check: TILE_M=4 TILE_N=16 TILE_K=128 RM=1 RN=1 ST=7 COPIERS=64 VEC_A=4 VEC_B=1 TURNS=2
// check: TILE_M=64 TILE_N=32 TILE_K=64 RM=4 RN=4 ST=3 VEC_A=4 VEC_B=4 VEC_C=4
// check: TILE_M=16 TILE_N=32 TILE_K=64 RM=4 RN=4 VEC_A=4 VEC_B=1 TURNS=2
// check: TILE_M=64 TILE_N=128 VEC_A=4 VEC_B=4 VEC_C=4 TURN=1 TURNS=3 BLOCKS=3
// check: REAL=double TILE_M=32 TILE_N=64 RM=2 RN=8 VEC_A=2 VEC_B=2 DMMA=1 TURNS=3
// check: TILE_M=16 TILE_N=64 TILE_K=64 RM=2 RN=4 COPIERS=64 VEC_A=4 VEC_B=4 TURNS=3 ADD=1
// check: TILE_M=96 TILE_N=64 RM=12 RN=4 TURN=1 STREAM=1 BLOCKS=4
// check: REAL=double TILE_M=64 TILE_N=64 RM=4 RN=8 VEC_A=2 VEC_B=2 DMMA=1 STREAM=1 TURNS=3 TRANS_B=1
// source: docs/semantics.md, section 6.
#include "rk_chain.cuh"
#include "rk_dmma.cuh"
#include "rk_early.cuh"

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
#ifndef VEC_A
#define VEC_A 1
#endif
#ifndef VEC_B
#define VEC_B 1
#endif
#ifndef VEC_C
#define VEC_C 1
#endif
#ifndef TURN
#define TURN 0
#endif
#ifndef ADD
#define ADD 0
#endif
#ifndef ALPHA
#define ALPHA 1
#endif
#ifndef DMMA
#define DMMA 0
#endif
#ifndef COPIERS
#define COPIERS 0
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef ROOM
#define ROOM 0
#endif
#ifndef TURNS
#define TURNS 0
#endif
#ifndef STREAM
#define STREAM 0
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef PIPE
#define PIPE 0
#endif
#ifndef BY_CACHE
#define BY_CACHE 0
#endif
#define THREADS_M (TILE_M / RM)
#define THREADS_N (TILE_N / RN)
#define THREADS (THREADS_M * THREADS_N)
#define UNIT (16 / (int)sizeof(REAL))
#define UNROLL (RM * RN < 64 ? TILE_K : 16) / UNIT          // limited by the instruction cache
#define AHEAD (RM * RN < 4 ? 4 : RM * RN < 64 ? 1 : 0)      // units of the sum that are read before they are used
// In shared memory a matrix lies along its lines or, turned, along the sum; with COPIERS those are turned that lie along their lines.
// Padding keeps what is read together in different banks.
#define ACROSS(ALONG) (COPIERS && TURN ? 0 : ALONG || TURN)
#define ACROSS_A ACROSS(TRANS_A)
#define ACROSS_B ACROSS(!TRANS_B)
#define ROW(ALONG, LINES) (ACROSS(ALONG) ? LINES + (DMMA ? 4 : ALONG ? 0 : UNIT) : TILE_K + (DMMA ? 4 : UNIT))
#define SIZE(ALONG, LINES) ((ACROSS(ALONG) ? TILE_K : LINES) * ROW(ALONG, LINES))
#define ROW_A ROW(TRANS_A, TILE_M)
#define ROW_B ROW(!TRANS_B, TILE_N)
#define STAGE (SIZE(TRANS_A, TILE_M) + SIZE(!TRANS_B, TILE_N))
#define BARRIERS (COPIERS ? 16 * ST : 0)  // bytes before the stages

#include "gemm_copies.cuh"
#include "gemm_lines.cuh"

__device__ __forceinline__ int row_of(int r, int tm) { return DMMA ? tm + r / 2 * 16 + r % 2 * 8 : line_of<RM, ACROSS_A, THREADS_M>(r, tm); }
__device__ __forceinline__ int column_of(int q, int tn) { return DMMA ? tn + q / 2 * 8 + q % 2 : line_of<RN, ACROSS_B, THREADS_N>(q, tn); }
__device__ __forceinline__ REAL element_a(const REAL *tile, int line, int p) { return tile[ACROSS_A ? p * ROW_A + line : line * ROW_A + p]; }
__device__ __forceinline__ REAL element_b(const REAL *tile, int line, int p) { return tile[ACROSS_B ? p * ROW_B + line : line * ROW_B + p]; }

#include "gemm_segments.cuh"
#if STREAM
#include "gemm_shares.cuh"
#endif
#if COPIERS
#include "gemm_few.cuh"
#elif DMMA
#include "gemm_doubles.cuh"
#else
#include "gemm_steps.cuh"
#endif
#if !COPIERS
#include "gemm_loop.cuh"
#endif

// Results of a tile. Tiles go in groups of 8 lines of them, so that neighbours share what is in L2.
__device__ __forceinline__ Results results_of(REAL *c, int m, int n, int tile, int tiles_m, int tiles_n) {
    int whole = 8 * tiles_n, first_m = tile / whole * 8, lines = min(8, tiles_m - first_m), rest = tile % whole;
    return Results{c, m, n, (first_m + rest % lines) * TILE_M, rest / lines * TILE_N};
}

extern "C" __global__ void RK_CLUSTER(CLUSTER) __launch_bounds__(THREADS + COPIERS, BLOCKS)
det_gemm(int m, int n, int k, int segment, const REAL *a, const REAL *b, REAL *c, u32 *turns, REAL *segments) {
    extern __shared__ __align__(16) unsigned char barriers[];
    unsigned char *raw = barriers + BARRIERS;
#if COPIERS
    rk_barriers_begin<ST>(rk_shared_address(barriers), 32), rk_barriers_begin<ST, 1>(rk_shared_address(barriers) + 8 * ST, THREADS / 32);
    rk_barriers_ready();
#endif
    int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N, tiles = tiles_m * tiles_n;
    int n_segment = (k - 1) / segment + 1, block = Sharing::begin(raw, turns);
    REAL *room = (REAL *)raw + (ROOM ? ST * STAGE : 0);
    rk_wait_for_earlier();
    rk_let_later_begin();
#if STREAM
    Shares shares(block, tiles, k, segment, turns, segments);
#pragma unroll 1
    for (int part = 0; part < shares.count(); ++part) {
        shares.begin(part);
        Results to = results_of(c, m, n, shares.tile, tiles_m, tiles_n);
        Sharing share(n_segment, 0, shares.tile, turns, segments, part + 1 == shares.count());
        if (shares.ends()) share.begun();
        REAL acc[RM][RN];
        shares.take(acc);
        many_results(acc, room, a, b, raw, to, shares.first, shares.last, k, segment, n_segment, share);
        shares.pass(acc);
    }
#else
    int tile = TURNS ? block % tiles : block / CLUSTER;
    Results to = results_of(c, m, n, tile, tiles_m, tiles_n);
    Sharing share(n_segment, TURNS ? block / tiles : block % CLUSTER, tile, turns, segments);
    share.begun();
    REAL acc[RM][RN];
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) acc[x / RN][x % RN] = 0;
#if ADD == 2
    int first = threadIdx.x;
#pragma unroll
    for (int x = 0; x < RM * RN; ++x) {
#if !defined(RK_ON_CPU) && __CUDA_ARCH__ < 900
        if (x % 16 == 0) hold(acc);  // no more places at a time than registers are free for
        asm volatile("" : "+r"(first));
#endif
        const REAL *at = to.at(Place(first), x);
        if (at) acc[x / RN][x % RN] = *at;
    }
#endif
#if COPIERS
    int round = few_results(acc, room, a, b, raw, to, k, segment, n_segment, share);
#else
    int round = many_results(acc, room, a, b, raw, to, share.rank * segment, k, k, segment, n_segment, share);
#endif
#if CLUSTER > 1
    end_rounds(acc, room, to, round, n_segment);
#else
    (void)round;
#endif
#endif
}

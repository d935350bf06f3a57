// Batch-invariant product of 16-bit floats on the tensor cores of Hopper: o = p q^T.
//
//   o_ij = [total_ij +] chain_ij,  chain_ij = [partial_ij +] sum over r of p_ir q_jr
//
//   p (n_i, n_r), or with P_MN (n_r, n_i); q (n_j, n_r), or with Q_MN (n_r, n_j)    bfloat16 (HALF: float16)
//   o (n_i, ld), or with OUT_T (n_j, ld)      RESULT: unsigned short (bits of the factors' type) or float
//   partial, total: float32, laid out as o    with FROM, ADD
//
// Sum: r in [first, first + n_r), in steps of 16 ascending, one accumulator; a step is one operation of the tensor core, in which order
// does not count (docs/semantics/gemm.md). So a result depends on its line of p and its line of q alone, whatever tile, role or launch.
// With PARTS the chain restarts at every multiple of SEGMENT, and results of segments are added left to right; else the sum lies in one.
//
// Persistent blocks of one copying and NC multiplying warpgroups: two warps of the first fill a ring of ST stages (64 SLABS of the sum) by
// the copy engine, each of the others owns a 64 x BN part of the tile; with BM below 64, the first BM lines of that. Blocks of a cluster with
// neighbouring tiles, CI of them along i, each copy a part of what several need, for all. Tiles in groups of `group` along i, which share
// what is in L2. What a tile begins with comes through the ring before its stages, what it is added to after; with OUT_T, from global memory.
//
// PARTS: how sums of several segments are made. With STREAM equal shares of the last tiles, see gemm_stream.cuh.
//   1  A block makes the segments of a tile one after another. Sums so far wait in registers, in shared memory and in `room`.
//   2  As 1, but of the last tiles, if fewer than the blocks, a block leaves one segment in `room`; those that end last add shares of all.
//   3  JOINED blocks of a cluster make a segment of one tile each. Each one adds a share from the others' shared memory.
//
// Macros: NC (1, 2, 3), BM (64 NC; with NC 1 and OUT_T also 8, 16, 32), BN (16 to 256; a multiple of 16, with FROM or ADD and without OUT_T
//         of 64), ST, SLABS (1, 2, 4), P_MN, Q_MN, OUT_T, RESULT, FROM, ADD, HALF, BLOCKS (a multiprocessor), LOOSE (lines of o may begin
//         anywhere), PARTS (0: one segment; 1, 2, 3: see above; no FROM, no ADD), JOINED (with PARTS 3: the number of segments), CLUSTER
//         (1, 2, 4, times JOINED; no FROM, no ADD), CI (divides it), STREAM (not with PARTS 3, FROM, ADD), SEGMENT (terms; a multiple of a
//         stage), HELD, STAGED (with PARTS 1, 2: how many of a thread's BN / 2 sums are in registers and, of those that results are stored
//         from, in shared memory). `turns`, 0 before and after: with STREAM 1 + NC a block, with PARTS 2 2 NC a split tile.
// Alignment: addresses 16 bytes, lines of p, q, o 16 bytes; o with LOOSE: those of its type.
// mirror: rpukit/gemm/_mirror/tensor.py::det_gemm_tensor
// op: rpukit.gemm.tensor.det_gemm_tensor
// bits: arch-exact
// arch: sm_90a
// check: Q_MN=1
// check: P_MN=1 Q_MN=1 RESULT=float FROM=1
// check: P_MN=1 Q_MN=1 FROM=1 ADD=1
// check: BN=128 ST=6 ADD=1 HALF=1
// check: NC=3 BN=192 ST=4 Q_MN=1
// check: LOOSE=1
// check: RESULT=float LOOSE=1
// check: NC=1 BN=16 ST=10 OUT_T=1 P_MN=1 BLOCKS=2 LOOSE=1
// check: PARTS=1 HELD=64 STAGED=32
// check: NC=3 BN=192 ST=4 Q_MN=1 PARTS=1 HELD=16 STAGED=16
// check: BN=128 ST=6 PARTS=2 HELD=64
// check: NC=1 BN=64 ST=6 OUT_T=1 BLOCKS=2 PARTS=2 HELD=32
// check: CLUSTER=2 CI=2 Q_MN=1
// check: NC=3 BN=192 CLUSTER=2 P_MN=1
// check: NC=1 BN=64 ST=6 OUT_T=1 SLABS=2 CLUSTER=4 CI=2 PARTS=1 HELD=32
// check: NC=1 BN=16 ST=5 OUT_T=1 SLABS=4 PARTS=2 HELD=8
// check: NC=1 BN=16 ST=5 OUT_T=1 SLABS=4 PARTS=3 CLUSTER=3 JOINED=3
// check: NC=1 BN=64 ST=6 SLABS=2 Q_MN=1 PARTS=3 CLUSTER=8 JOINED=8
// check: NC=2 BN=144 ST=5 OUT_T=1 CLUSTER=4 CI=4
// check: NC=1 BM=16 BN=16 ST=6 OUT_T=1 SLABS=4 P_MN=1 PARTS=3 CLUSTER=2 JOINED=2
// check: NC=1 BM=32 BN=32 ST=6 OUT_T=1 SLABS=4 P_MN=1 Q_MN=1 PARTS=2 HELD=16
// check: BN=144 ST=5 RESULT=float
// check: NC=1 BN=80 ST=6 Q_MN=1 PARTS=1 HELD=40 CLUSTER=2 CI=2
// check: NC=1 BN=16 ST=3 OUT_T=1 SLABS=4 Q_MN=1 PARTS=3 CLUSTER=2 JOINED=2
// check: NC=1 BN=160 ST=7 OUT_T=1 PARTS=3 CLUSTER=3 JOINED=3
// check: PARTS=3 CLUSTER=4 JOINED=2 CI=2
// check: STREAM=1
// check: NC=3 BN=192 ST=4 STREAM=1 PARTS=1 HELD=4 STAGED=16
// check: STREAM=1 PARTS=1 HELD=52 STAGED=32 CLUSTER=2
// check: NC=2 BN=144 ST=5 OUT_T=1 CLUSTER=4 CI=4 STREAM=1 PARTS=2 HELD=48
// check: NC=1 BN=64 ST=6 OUT_T=1 SLABS=2 STREAM=1 PARTS=2 HELD=32
// source: docs/semantics/gemm.md; PTX ISA 8.0, asynchronous warpgroup instructions.
#include "rk_wgmma.cuh"

#include "gemm_ring.cuh"
#include "gemm_results.cuh"
#include "gemm_joins.cuh"
#include "gemm_stages.cuh"

extern "C" __global__ void RK_CLUSTER(CLUSTER) __launch_bounds__(N_THREAD, BLOCKS)
det_gemm_tensor(int n_i, int n_j, int n_r, int first, int ld, int group, const __grid_constant__ RkTensorMap p,
                const __grid_constant__ RkTensorMap q, const __grid_constant__ RkTensorMap o, const __grid_constant__ RkTensorMap start,
                const __grid_constant__ RkTensorMap sum, const float *partial, const float *total, RESULT *out, u32 *turns, float *room) {
    extern __shared__ __align__(1024) unsigned char raw[];
    u32 at_p = (rk_shared_address(raw) + 1023u) & ~1023u, at_q = at_p + ST * P_BYTES, staging = at_q + ST * Q_BYTES;
    u32 full = staging + STAGING, empty = full + 8 * ST;
    u32 *slot = (u32 *)rk_at(empty + 8 * ST) + threadIdx.x / 128;
    int lane = threadIdx.x % 32, number = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the compiler sees that a warp has one
    int role = number / 4, warp = number % 4;
    if (threadIdx.x == 0) {
        for (int s = 0; s < ST; ++s) {
            rk_barrier_init(full + 8 * s, 1);
            rk_barrier_init(empty + 8 * s, NC * 4 * (CI + CJ - 1));
        }
        rk_barriers_ready();
    }
#if STREAM
    rk_wait_for_earlier();
    int worker = begin_worker(turns, slot - threadIdx.x / 128);
#else
    rk_blocks_meet();
    rk_wait_for_earlier();
    int worker = blockIdx.x / CLUSTER;
#endif
    rk_let_later_begin();
    Tiles tiles(n_i, n_j, n_r, group, worker);
    int i0, j0, s = 0, n_all = tiles.n_all;
    float *slots = room + (u64)gridDim.x * (NC * LEFT * 128), *segments = slots;  // behind what is kept
    u32 *counters = turns;
#if STREAM
    segments += (u64)gridDim.x * (NC * 128 * (BN / 2 + Passed::sums)), counters += 1 + gridDim.x * NC;
#endif
    if (role == 0) {
        if (NC > 1) rk_fewer_registers<40>();
        // Warps take turns: one alone cannot issue requests fast enough. All lanes of a warp go along, so that it has one address.
        u32 phase = 1;
        int own = warp, begun = 0;  // the next of a tile's stages that is this warp's; pieces that it has counted
        s = warp;
        while (warp < SENDERS && tiles.next(i0, j0)) {
            int n_step = tiles.last - tiles.first, n_stage = N_FROM + n_step + N_ADD;
#if PARTS == 2
            if (warp == 0 && begun < 2) begin_segments(tiles, counters, begun++);  // with the second piece, all that are left
#endif
            for (; own < n_stage; own += SENDERS) {
                u32 to_p = at_p + s * P_BYTES, to_q = at_q + s * Q_BYTES;
                int k = own - N_FROM;
                rk_wait(empty + 8 * s, phase);
                if (rk_elected()) {
                    if (N_FROM && k < 0) fetch_sums(to_p, to_q, start, own, i0, j0, full + 8 * s);
                    else if (N_ADD && k >= n_step) fetch_sums(to_p, to_q, sum, k - n_step, i0, j0, full + 8 * s);
                    else
                        fetch(to_p, to_q, p, q, tiles, i0, j0, first + (tiles.first + k) * BK, full + 8 * s,
                              Q_MN || CI > 1 ? Q_BYTES : min(n_j, BN) * 2 * BK);  // for few lines, request no others
                }
                s += SENDERS;
                if (s >= ST) s -= ST, phase ^= 1;
            }
            own -= n_stage;
        }
        __syncwarp();
#if PARTS == 3
        rk_cluster_arrive();
        rk_cluster_wait();
        rk_cluster_arrive();
#endif
    } else {
        if (NC > 1) rk_more_registers<NC == 2 ? 232 : 152>();
        u32 phase = 0, sent = 0, away = SHARE > 1 ? rk_cluster_address(empty, tiles.partner(lane % SHARE)) : empty;
        u64 of_p = rk_descriptor(P_MN ? RK_DESC_MN(P_BOX) : RK_DESC_K, at_p + (role - 1) * 8192);
        u64 of_q = rk_descriptor(Q_MN ? RK_DESC_MN(Q_BOX) : RK_DESC_K, at_q);
        float d[BN / 2];
        auto release = [&](int stage) {
            if (lane < CI + CJ - 1) rk_arrive_at(away + 8 * stage);
        };
        auto take_sums = [&](bool add) {  // from the ring to the accumulators
#pragma unroll
            for (int part = 0; part < N_SUMS; ++part) {
                rk_wait(full + 8 * s, phase);
#pragma unroll
                for (int b = 0; b < EACH; ++b)
                    if (part * EACH + b < BN / 32)
                        read_box(d, part * EACH + b, sums_at(at_p + s * P_BYTES, at_q + s * Q_BYTES, b * NC + role - 1), add);
                rk_see_stores();
                __syncwarp();
                if (lane == 0) rk_arrive(empty + 8 * s);
                if (++s == ST) s = 0, phase ^= 1;
            }
        };
        auto stores_left = [&]() {  // results of the tile before may still be on their way
            if (threadIdx.x % 128 == 0) rk_stores_left<0>();
            rk_sync_group(role);
        };
        while (tiles.next(i0, j0)) {
            int i = i0 + (role - 1) * 64, end_i = min(n_i, i0 + BM);
#pragma unroll
            for (int x = 0; x < BN / 2; x += 2)
                if ((FROM && OUT_T) || n_r == 0) {
                    int row = i + warp * 16 + x / 2 % 2 * 8 + lane / 4, column = j0 + x / 4 * 8 + lane % 4 * 2;
                    float2 v = FROM && OUT_T ? read_pair(partial, row, column, n_i, n_j, ld) : make_float2(0.0f, 0.0f);
                    d[x] = v.x, d[x + 1] = v.y;
                }
            if (N_FROM) take_sums(false);
            Kept<LEFT, 128> kept(room, blockIdx.x * NC + role - 1);
            float held[KEEPS ? HELD : 1] = {};  // sums of the segments so far: a chain is never -0
            int begin = tiles.first, end, part = begin / PER, goes_on = FROM;  // whether a chain does, in this warpgroup
            u32 staged = staging + (role - 1) * BUFFERS * 8192;
#if STREAM
            Passed passed(slots, turns + 1, ((worker - tiles.taken) * CLUSTER + blockIdx.x % CLUSTER) * NC + role - 1);
            if (tiles.taken) goes_on = 1, part = (begin - 1) / PER;
            if (tiles.taken && STAGED) stores_left();
            passed.take(d, held, staged, kept, tiles.taken, part > 0);
#endif
            for (;; begin = end, goes_on = 0, ++part) {
                end = KEEPS ? min((part + 1) * PER, tiles.last) : tiles.last;
                bool ready = false;
                for (int k = begin; k < end; ++k) {
                    if (!ready) rk_wait(full + 8 * s, phase);
                    u64 dp = rk_further(of_p, s * (P_BYTES / 16)), dq = rk_further(of_q, s * (Q_BYTES / 16));
                    rk_hold(d);
                    rk_wgmma_begin();
#pragma unroll
                    for (int e = 0; e < BK / 16; ++e)
                        rk_wgmma<P_MN, Q_MN>(d, rk_further(dp, e / 4 * (BM * 8) + e % 4 * (P_MN ? 2 * P_BOX : 2)),
                                             rk_further(dq, e / 4 * (Q_ROWS * 8) + e % 4 * (Q_MN ? 2 * Q_BOX : 2)), FROM ? 1 : (k - begin) | e | goes_on);
                    rk_wgmma_end();
                    int done = s - LAG;
                    if (++s == ST) s = 0, phase ^= 1;
                    ready = rk_peek(full + 8 * s, phase);
                    if (k - begin >= LAG) {
                        rk_wgmma_left<LAG>();
                        release(done < 0 ? done + ST : done);
                    }
                }
                rk_wgmma_left<0>();
                rk_hold(d);
                for (int left = min(LAG, end - begin); left > 0; --left) release(s < left ? s - left + ST : s - left);
                if (!KEEPS || tiles.apart || (STREAM && tiles.given && end == tiles.last)) break;
                if (STAGED && begin == tiles.first) stores_left();
                staged_add<HELD, STAGED>(d, staged, part > 0, end < n_all);
                if (part > 0) kept.add(d + HELD + STAGED);
                if (end < n_all) kept.put(d + HELD + STAGED);
#pragma unroll
                for (int x = 0; x < HELD; ++x) held[x] += d[x];
                if (end == n_all) break;
            }
#if STREAM
            if (tiles.given) {
                passed.put(d, held, staged, kept, part > 0);
                continue;
            }
#endif
            if (KEEPS && !tiles.apart)
#pragma unroll
                for (int x = 0; x < HELD; ++x) d[x] = held[x];
            auto write = [&](int x, float4 v) { write_four(v, x, out, i, j0, end_i, n_j, ld); };
#if PARTS == 2
            if (tiles.apart) {
                int i_later, j_later;
                bool waits = !Tiles(tiles).next(i_later, j_later);
                join_segments(d, segments, PartCounts(counters, tiles.number, role - 1, n_all), tiles.part, waits, slot, write);
                continue;
            }
#elif PARTS == 3
            join_blocks(d, (float *)rk_at(at_p), tiles.part, write);
            continue;
#endif
            if (N_ADD) take_sums(true);
            write_results(d, out, o, total, staging, sent, role - 1, i, j0, n_i, end_i, n_j, ld);
        }
        if (!OUT_T && !LOOSE && BN % 64 == 0 && threadIdx.x % 128 == 0) rk_stores_done();
    }
#if PARTS == 3
    rk_cluster_wait();  // until none of its blocks reads another's sums
#else
    if (CLUSTER > 1) rk_blocks_meet();  // until none of its blocks sends to another
#endif
}

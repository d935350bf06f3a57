// The work of a block of det_gemm_tensor.cu, and what fills its ring of stages. Uses its macros.
#pragma once
#include "rk_multicast.cuh"
#if STREAM
#include "gemm_stream.cuh"
#endif

// The work of a block, one piece after another: tiles; with PARTS 2 whole tiles first and then segments of those that are fewer than the
// blocks. The blocks of a cluster have neighbouring tiles; with PARTS 3, SHARE of them have the first segments of these tiles, the next SHARE
// the second ones, and so on. With STREAM the last pieces are cut into ranges of one length, see Stream.
struct Tiles {
    int n_p, n_q, n_all, at, group, rank_i, rank_j, whole, number = 0, part = 0;
    int first = 0, last = 0;  // stages of this piece
    bool apart = PARTS == 3;  // whether this piece is a segment, or a part of one
    bool taken = false, given = false;  // whether it goes on where another worker ended, and is left to another
#if STREAM
    Stream stream;
#endif
    // `worker`: of gridDim.x / CLUSTER; n_r: terms of the sum.
    __device__ __forceinline__ Tiles(int n_i, int n_j, int n_r, int group, int worker)
        : n_p((n_i + CI * BM - 1) / (CI * BM)), n_q((n_j + CJ * BN - 1) / (CJ * BN)), n_all((n_r + BK - 1) / BK), at(worker), group(group),
          rank_i(blockIdx.x % CI), rank_j(blockIdx.x % SHARE / CI) {
        int n_worker = gridDim.x / CLUSTER, n_tile = n_p * n_q, rounds = n_tile / n_worker;
        whole = PARTS == 2 ? rounds * n_worker : STREAM ? max(0, rounds - 1) * n_worker : n_tile;
#if STREAM
        stream = Stream(n_tile - whole, n_all, worker, n_worker);
#endif
    }
    __device__ __forceinline__ bool next(int &i, int &j) {
        int n_worker = gridDim.x / CLUSTER, place = at;
        first = 0, last = n_all;
        if (at < whole) {
            at += n_worker;
            if (PARTS == 3) part = blockIdx.x % CLUSTER / SHARE, first = part * PER, last = min(first + PER, n_all);
        } else if (STREAM) {
#if STREAM
            if (!stream.next(n_all, first, last, taken, given)) return false;
            place = whole + stream.tile, part = first / PER, apart = PARTS == 2;
#endif
        } else {
            int rest = n_p * n_q - whole, parts = (n_all + PER - 1) / PER, full = rest * (parts - 1), piece = at - whole;
            if (PARTS == 2 && piece >= full) piece = full + short_piece(piece, full, n_worker, n_all - (parts - 1) * PER);
            if (PARTS != 2 || piece >= full + rest) return false;
            place = whole + piece % rest, part = piece / rest, apart = true;
            first = part * PER, last = min(first + PER, n_all);
            at += n_worker;
        }
        int band = group * n_q, begin = place / band * group, lines = min(group, n_p - begin), inside = place % band;
        number = (place - whole) * SHARE + rank_i + CI * rank_j;
        i = ((begin + inside % lines) * CI + rank_i) * BM;
        j = (inside / lines * CJ + rank_j) * BN;
        return true;
    }
    // Which tile's last segment, of `n_last` stages, is piece number `piece`; the first `full` pieces are full segments. Workers that have one
    // full segment fewer first take several, until they have as many stages as the others. Then all workers take one in turn.
    static __device__ __forceinline__ int short_piece(int piece, int full, int n_worker, int n_last) {
        constexpr int other = PER < 16 ? 1 : PER / 16;  // stages for which a piece takes longer than its own
        int worker = piece % n_worker, busy = full % n_worker, free = n_worker - busy, each = 1 + PER / (n_last + other);
        int turn = piece / n_worker - full / n_worker, before = worker < busy ? 1 : each;
        return worker >= busy && turn < each ? turn * free + worker - busy : each * free + (turn - before) * n_worker + worker;
    }
    // Block number `n` of those that wait for what this one fetches: first those with its lines of q.
    __device__ __forceinline__ int partner(int n) const {
        return first_rank() + (n < CI ? n + CI * rank_j : rank_i + CI * (n - CI + (n - CI >= rank_j)));
    }
    // Number in the cluster of the first block of those that share.
    static __device__ __forceinline__ int first_rank() { return blockIdx.x % CLUSTER / SHARE * SHARE; }
};

#if PARTS == 2
// Count the segment that a worker has come to, and with `later` all those that it has left, which it ends whatever others do. By one warp.
__device__ __forceinline__ void begin_segments(Tiles tiles, u32 *counters, bool later) {
    int i, j;
    do
        if (tiles.apart && !tiles.given) PartCounts(counters, tiles.number, 0, tiles.n_all).begin_all();
    while (later && tiles.next(i, j));
}
#endif

// A stage of both factors. What several blocks of a cluster need each fetches in part, for all of them.
__device__ __forceinline__ void fetch(u32 to_p, u32 to_q, const RkTensorMap &p, const RkTensorMap &q, const Tiles &tiles, int i, int j,
                                      int r, u32 full, int q_bytes) {
    constexpr u32 columns = ((1u << SHARE) - 1) / ((1u << CI) - 1);  // a bit every CI
    u32 same_i = columns << (tiles.first_rank() + tiles.rank_i), same_j = ((1u << CI) - 1) << (tiles.first_rank() + CI * tiles.rank_j);
    int p_line = tiles.rank_j * ((P_MN ? 64 : BM) / CJ), q_line = tiles.rank_i * ((Q_MN ? 64 : BN) / CI);
    rk_arrive_expect(full, P_BYTES + q_bytes);
    to_p += p_line * 128, to_q += q_line * (Q_MN ? 2 * Q_BOX : 128);
#pragma unroll
    for (int slab = 0; slab < SLABS; ++slab, r += 64, to_p += BM * 128, to_q += Q_ROWS * 128) {
        if (P_MN)
#pragma unroll
            for (int b = 0; b < NC; ++b) rk_load_box_to<CJ>(to_p + b * 8192, p, i + 64 * b, r + p_line, full, same_i);
        else rk_load_box_to<CJ>(to_p, p, r, i + p_line, full, same_i);
        if (Q_MN)
#pragma unroll
            for (int b = 0; b < Q_ROWS / Q_BOX; ++b) rk_load_box_to<CI>(to_q + b * 8192, q, j + 64 * b, r + q_line, full, same_j);
        else rk_load_box_to<CI>(to_q, q, r, j + q_line, full, same_j);
    }
}

// Box `b` of a stage for sums.
__device__ __forceinline__ u32 sums_at(u32 p, u32 q, int b) { return b < NC ? p + b * 8192 : q + (b - NC) * 8192; }

// Part `part` of a tile's sums: boxes of 32 columns, for one warpgroup after the other.
__device__ __forceinline__ void fetch_sums(u32 to_p, u32 to_q, const RkTensorMap &sums, int part, int i, int j, u32 full) {
    rk_arrive_expect(full, NC * 8192 * min(EACH, BN / 32 - part * EACH));
#pragma unroll
    for (int b = 0; b < NC * EACH; ++b) {
        int column = part * EACH + b / NC;
        if (column < BN / 32) rk_load_box(sums_at(to_p, to_q, b), sums, 2 * (j + 32 * column), i + 64 * (b % NC), full);
    }
}

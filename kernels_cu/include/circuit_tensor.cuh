// Sums of weights times exponentials on tensor cores, which both directions of a layer of sums are made of: BI outputs of
// BJ samples a block. Weights are words of round_weights.cu, exponentials those of tensor_stage.cu; with SPLIT each is a pair.
#pragma once
#include "gemm_warps.cuh"
#include "circuit_own.cuh"
#include "circuit_split.cuh"

#define LINE (BI + 4)  // of the totals of a sample: what a warp writes at once lies in different banks
#define LINE_OF(size) (((size) + 7) / 8 * 8)  // of weights

struct Warp { int i, j; };  // first output and sample of a warp

__device__ __forceinline__ Warp own_part() {
    int warp = threadIdx.x / 32;
    return Warp{warp % WI * (BI / WI), warp / WI * (BJ / WJ)};
}

#define OF_P (BI * BK * 2)  // bytes of a plane in a stage: high p, low p, high q, low q
#define OF_Q (BJ * BK * 2)

// As `fragment`, but lines 0-7 of both halves of the depths come first: the pairs of registers that rk_mma's second factor needs
// are neighbours then, and nothing has to be moved.
template <int LINES, int MN> __device__ __forceinline__ void fragment_of_pairs(u32 (&v)[4], u32 stage, int line, int depth) {
    int lane = threadIdx.x % 32, row = lane % 8, second = lane / 8 % 2 * 8, third = lane / 16 * 8;
    if (MN) rk_load_matrices<true>(v, stage + place<LINES, MN>(line + third, depth + second + row));
    else rk_load_matrices<false>(v, stage + place<LINES, MN>(line + third + row, depth + second));
}

// Fragments of a warp for a step of 16.
struct Fragments {
    u32 a[MI][4], b[MJ / 2][4];
    __device__ __forceinline__ void load_p(u32 at, Warp own, int e) {
#pragma unroll
        for (int x = 0; x < MI; ++x) fragment<BI, P_MN>(a[x], at, own.i + 16 * x, e);
    }
    __device__ __forceinline__ void load_q(u32 at, Warp own, int e) {
#pragma unroll
        for (int x = 0; x < MJ / 2; ++x) fragment_of_pairs<BJ, Q_MN>(b[x], at, own.j + 16 * x, e);
    }
};
__device__ __forceinline__ void multiply(float (&d)[MI][MJ][4], const Fragments &of_p, const Fragments &of_q) {
#pragma unroll
    for (int x = 0; x < MI; ++x)
#pragma unroll
        for (int y = 0; y < MJ; ++y) rk_mma(d[x][y], of_p.a[x], of_q.b[y / 2][y % 2 * 2], of_q.b[y / 2][y % 2 * 2 + 1]);
}

// Products of split factors, COUNT steps of 16 from depth e0 of a stage on: of each step low p by high q, then high p by low q;
// then of each step the high ones, so that the small products are added while the chain is small. Fragments are read a step ahead;
// `between(s)` is called after the small products of step s, while tensor cores work.
template <int COUNT, class Between>
__device__ __forceinline__ void multiply_split(float (&d)[MI][MJ][4], u32 at, Warp own, int e0, Between between) {
    Fragments high[COUNT], low[2];
    auto load = [&](int s) {
        high[s].load_q(at + 2 * OF_P, own, e0 + 16 * s);
        low[s % 2].load_p(at + OF_P, own, e0 + 16 * s);
        high[s].load_p(at, own, e0 + 16 * s);
        low[s % 2].load_q(at + 2 * OF_P + OF_Q, own, e0 + 16 * s);
    };
    load(0);
#pragma unroll
    for (int s = 0; s < COUNT; ++s) {
        if (s + 1 < COUNT) load(s + 1);
        multiply(d, low[s % 2], high[s]);
        multiply(d, high[s], low[s % 2]);
        between(s);
    }
#pragma unroll
    for (int s = 0; s < COUNT; ++s) multiply(d, high[s], high[s]);
}

// d = d + part, and part = 0.
__device__ __forceinline__ void add_part(float (&d)[MI][MJ][4], float (&part)[MI][MJ][4]) {
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x) {
        float &p = part[x / (4 * MJ)][x / 4 % MJ][x % 4];
        d[x / (4 * MJ)][x / 4 % MJ][x % 4] = d[x / (4 * MJ)][x / 4 % MJ][x % 4] + p;
        p = 0.0f;
    }
}

// Stages of split factors: each is one chain from 0, which is then added. The planes of p and q are requested in between.
template <class FetchP, class FetchQ>
__device__ __forceinline__ void run_split(float (&d)[MI][MJ][4], u32 shared, Warp own, int n_step, FetchP fetch_p, FetchQ fetch_q) {
    float part[MI][MJ][4] = {};
    for (int k = 0, s = 0; k < n_step; ++k, s = s + 1 == ST ? 0 : s + 1) {
        rk_copies_left<ST - 2>();
        __syncthreads();
        int next = k + ST - 1, slot = s == 0 ? ST - 1 : s - 1;
        multiply_split<BK / 16>(part, shared + s * 2 * STAGE, own, 0, [&](int e) {
            if (next < n_step && e == 0) fetch_p(slot);
            if (next < n_step && e == 1) fetch_q(slot);
        });
        rk_copies_end();
        add_part(d, part);
    }
}

// Stages of factors that are no pairs: one chain.
template <class FetchP, class FetchQ>
__device__ __forceinline__ void run_single(float (&d)[MI][MJ][4], u32 shared, Warp own, int n_step, FetchP fetch_p, FetchQ fetch_q) {
    for (int k = 0, s = 0; k < n_step; ++k, s = s + 1 == ST ? 0 : s + 1) {
        rk_copies_left<ST - 2>();
        __syncthreads();
        int slot = s == 0 ? ST - 1 : s - 1;
#pragma unroll
        for (int e = 0; e < BK; e += 16) {
            Fragments both;
            both.load_p(shared + s * STAGE, own, e);
            both.load_q(shared + s * STAGE + OF_P, own, e);
            multiply(d, both, both);
            if (k + ST - 1 < n_step && e == 0) fetch_p(slot);
            if (k + ST - 1 < n_step && e == 16) fetch_q(slot);
        }
        rk_copies_end();
    }
}

// A thread's copies of a factor, one stage after another, and its low plane: LINES lines, of which there are n_line, BK of the n_r
// depths a stage. What follows a row of the array up to a multiple of 8 is there; behind the last depth it is 0.
template <int LINES, int MN> struct Copies {
    static constexpr int across = (MN ? LINES : BK) / 8, rows = MN ? BK : LINES, COUNT = (LINES * BK / 8 + N_THREAD - 1) / N_THREAD;
    static constexpr int APART = N_THREAD / across;  // rows between those of a thread
    static_assert(N_THREAD % across == 0, "a thread has one unit of each row");
    const u16 *from;
    i64 along, between, apart;  // to the next stage, to a thread's next row, to the low plane
    u32 spot;
    int row, unit, n_line, left;  // left: depths
    __device__ __forceinline__ void begin(const u16 *m, int ld, int lines, int n_r, i64 plane) {
        row = threadIdx.x / across, unit = threadIdx.x % across * 8, n_line = lines, left = n_r, apart = plane;
        from = m + (i64)row * ld + unit, along = MN ? (i64)BK * ld : BK, between = (i64)APART * ld;
        spot = place<LINES, MN>(MN ? unit : row, MN ? row : unit);
    }
    __device__ __forceinline__ void ask(u32 to) {
        const u16 *high = from;
        bool own = unit < (MN ? n_line : left);
#pragma unroll
        for (int q = 0; q < COUNT; ++q, high += between) {
            int r = row + q * APART;
            if (LINES * BK / 8 % N_THREAD && r >= rows) break;
            int n_byte = own && r < (MN ? left : n_line) ? 16 : 0;
            u32 into = to + ((!MN || LINES >= 64) && APART % 8 == 0 ? spot + q * APART * 128 : place<LINES, MN>(MN ? unit : r, MN ? r : unit));
            rk_copy<16>(into, high, n_byte);
            if (SPLIT) rk_copy<16>(into + LINES * BK * 2, high + apart, n_byte);
        }
        from += along, left -= BK;
    }
};

// One chain over n_r inputs for each output and sample, or with SPLIT one of each BK inputs; p, q: first weight, first exponential of the tile, n_i, n_j of them.
// `ready` waits until exponentials can be read; weights are requested before that. Low planes are p_apart and q_apart words on.
template <class Ready>
__device__ __forceinline__ void make_chains(float (&d)[MI][MJ][4], u32 shared, Warp own, const u16 *p, int ld_p, int n_i, const u16 *q,
                                            int ld_q, int n_j, int n_r, i64 p_apart, i64 q_apart, Ready ready) {
    int n_step = (n_r + BK - 1) / BK;
    Copies<BI, P_MN> of_p;
    Copies<BJ, Q_MN> of_q;
    of_p.begin(p, ld_p, n_i, n_r, p_apart);
    of_q.begin(q, ld_q, n_j, n_r, q_apart);
    auto ask_p = [&](int slot) { of_p.ask(shared + slot * (SPLIT + 1) * STAGE); };
    auto ask_q = [&](int slot) { of_q.ask(shared + slot * (SPLIT + 1) * STAGE + (SPLIT + 1) * OF_P); };
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x) d[x / (4 * MJ)][x / 4 % MJ][x % 4] = 0.0f;
#pragma unroll
    for (int s = 0; s < ST - 1; ++s)
        if (s < n_step) ask_p(s);
    ready();
#pragma unroll
    for (int s = 0; s < ST - 1; ++s) {
        if (s < n_step) ask_q(s);
        rk_copies_end();
    }
#if SPLIT
    run_split(d, shared, own, n_step, ask_p, ask_q);
#else
    run_single(d, shared, own, n_step, ask_p, ask_q);
#endif
    __syncthreads();  // before shared memory has another use
}

// Call go(x, i, j) for each chain of a thread: output i of sample j of the tile.
template <class Go> __device__ __forceinline__ void each_chain(Warp own, Go go) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int x = 0; x < MI * MJ * 4; ++x)
        go(x, own.i + 16 * (x / (4 * MJ)) + x / 2 % 2 * 8 + lane / 4, own.j + 8 * (x / 4 % MJ) + lane % 4 * 2 + x % 2);
}

// Put totals where all threads find them: of output i and sample j at area[j * LINE + i].
__device__ __forceinline__ void spread(const float (&total)[MI][MJ][4], float *area, Warp own) {
    each_chain(own, [&](int x, int i, int j) { area[j * LINE + i] = total[x / (4 * MJ)][x / 4 % MJ][x % 4]; });
    __syncthreads();
}

// det_gemm.cu for few results, whose time is that of a chain: COPIERS / 32 warps fill the stages, each every so many, and THREADS
// threads multiply. Two barriers a stage count who has filled it and who has read it. Operands are read some steps ahead, across stages.
#pragma once
#include "rk_tma.cuh"

#if DMMA
#define GRAIN (RM * RN <= 16 ? 16 : 8)  // steps of the sum that are read, and multiplied, together
#else
#define GRAIN (RM * RN <= 2 ? 4 * UNIT : RM * RN <= 4 ? 2 * UNIT : UNIT)
#endif
#define GRAINS (TILE_K / GRAIN)
#define RING (DMMA && GRAINS % 4 == 0 ? 4 : 2)  // of them in registers
#define FURTHER (RING / 2)                      // how many grains before it is multiplied one is read
#define PARTS (DMMA ? RM * RN / 4 : GRAIN)  // of the work of a grain
static_assert(GRAINS % RING == 0 && GRAINS >= 2 * FURTHER && ST >= 3 && THREADS % 32 == 0 && COPIERS % 32 == 0 && !(TURN && DMMA), "macros");

// Operands of a thread, from its place in a stage. Beyond the end of a sum b is 0; there `end` makes a -0, so that
// fma(a, b, c) is c: with 0 it would turn -0 into +0.
#if DMMA
struct Ahead {
    double a[RING][RM / 2][GRAIN / 2], b[RING][RN / 2][GRAIN / 4];
    static __device__ __forceinline__ int place_a(int tm) { return ACROSS_A ? threadIdx.x % 4 * ROW_A + tm : tm * ROW_A + threadIdx.x % 4; }
    static __device__ __forceinline__ int place_b(int tn) {
        int k = threadIdx.x % 4, line = tn - 2 * k + threadIdx.x % 32 / 4;
        return ACROSS_B ? k * ROW_B + line : line * ROW_B + k;
    }
    __device__ __forceinline__ void read(int to, const double *as, const double *bs, int p) {
#pragma unroll
        for (int x = 0; x < RM / 2; ++x)
#pragma unroll
            for (int y = 0; y < GRAIN / 2; ++y) a[to][x][y] = element_a(as, row_of(2 * x + y % 2, 0), p + y / 2 * 4);
#pragma unroll
        for (int x = 0; x < RN / 2; ++x)
#pragma unroll
            for (int y = 0; y < GRAIN / 4; ++y) b[to][x][y] = element_b(bs, x * 8, p + y * 4);
    }
    __device__ __forceinline__ void end(int at, int left) {
#pragma unroll
        for (int x = 0; x < RM / 2 * (GRAIN / 2); ++x)
            if ((int)threadIdx.x % 4 + x % (GRAIN / 2) / 2 * 4 >= left) a[at][x / (GRAIN / 2)][x % (GRAIN / 2)] = -0.0;
    }
    // The FIRST to LAST - 1 of the products of warps.
    template <int FIRST, int LAST> __device__ __forceinline__ void multiply(int at, double (&acc)[RM][RN]) {
#pragma unroll
        for (int x = FIRST; x < LAST; ++x) {
            int i = x / (RN / 2) * 2, j = x % (RN / 2) * 2;
            double c[4] = {acc[i][j], acc[i][j + 1], acc[i + 1][j], acc[i + 1][j + 1]};
            rk_dmma(c, a[at][i / 2], b[at][j / 2]);
            acc[i][j] = c[0], acc[i][j + 1] = c[1], acc[i + 1][j] = c[2], acc[i + 1][j + 1] = c[3];
        }
    }
};
#else
struct Ahead {
    REAL a[RING][GRAIN / UNIT][RM][UNIT], b[RING][GRAIN / UNIT][RN][UNIT];
    static __device__ __forceinline__ int place_a(int tm) { return row_of(0, tm) * (ACROSS_A ? 1 : ROW_A); }
    static __device__ __forceinline__ int place_b(int tn) { return column_of(0, tn) * (ACROSS_B ? 1 : ROW_B); }
    __device__ __forceinline__ void read(int to, const REAL *as, const REAL *bs, int p) {
#pragma unroll
        for (int u = 0; u < GRAIN / UNIT; ++u) {
            read_lines<RM, ACROSS_A, ROW_A, THREADS_M>(a[to][u], as, p + u * UNIT);
            read_lines<RN, ACROSS_B, ROW_B, THREADS_N>(b[to][u], bs, p + u * UNIT);
        }
    }
    __device__ __forceinline__ void end(int at, int left) {
#pragma unroll
        for (int x = 0; x < RM * GRAIN; ++x)
            if (x % GRAIN >= left) a[at][x % GRAIN / UNIT][x / GRAIN][x % UNIT] = (REAL)-0.0;
    }
    // Steps FIRST to LAST - 1.
    template <int FIRST, int LAST> __device__ __forceinline__ void multiply(int at, REAL (&acc)[RM][RN]) {
#pragma unroll
        for (int w = FIRST; w < LAST; ++w)
#pragma unroll
            for (int x = 0; x < RM * RN; ++x)
                acc[x / RN][x % RN] = fma_rn(a[at][w / UNIT][x / RN][w % UNIT], b[at][w / UNIT][x % RN][w % UNIT], acc[x / RN][x % RN]);
    }
};
#endif

// Steps of the sum in a stage that is there as a whole. Then the first grains of the stage that is `later` elements on are read, if
// `more`: when `full` says that it is there. Else what is read is not used.
__device__ __forceinline__ void chain_stage(REAL (&acc)[RM][RN], Ahead &v, const REAL *as, const REAL *bs, int later, bool more, u32 full, u32 phase) {
    bool there = !more;
#pragma unroll
    for (int u = 0; u < GRAINS; ++u) {
        v.multiply<0, 1>(u % RING, acc);  // waits for its operands, when no others are on their way
        hold(acc);
        if (u + FURTHER == GRAINS && !there) rk_wait(full, phase);
        int from = u + FURTHER < GRAINS ? 0 : later;
        v.read((u + FURTHER) % RING, as + from, bs + from, (u + FURTHER) % GRAINS * GRAIN);
        v.multiply<1, PARTS>(u % RING, acc);
        if (u == GRAINS / 2 - 1) there = there || rk_peek(full, phase);
    }
}
// The `left` steps of the stage in which the sum ends.
__device__ __forceinline__ void chain_end(REAL (&acc)[RM][RN], Ahead &v, const REAL *as, const REAL *bs, int left) {
#pragma unroll
    for (int u = 0; u < GRAINS; ++u) {
        if (u * GRAIN >= left) break;
        v.end(u % RING, left - u * GRAIN);
        v.multiply<0, 1>(u % RING, acc);
        hold(acc);
        if (u + FURTHER < GRAINS) v.read((u + FURTHER) % RING, as, bs, (u + FURTHER) * GRAIN);
        v.multiply<1, PARTS>(u % RING, acc);
    }
}

// The stages that a warp fills: it asks for all that the ring has room for, and never waits for what it asked for.
struct Filling {
    const REAL *a, *b;
    u32 stages, full;
    int k, warp, step, slot, asked;  // the step of the sum at which the next stage begins, whichever warp fills it
    u32 phase;
    __device__ __forceinline__ void next(const Results &to, int segment, const Sharing &share) {
        if (asked < k && step % (COPIERS / 32) == warp) {
            u32 stage = stages + slot * STAGE * (int)sizeof(REAL);
            CopiesA ca(stage, a, to.row0, to.m, asked, k);
            CopiesB cb(stage + SIZE(TRANS_A, TILE_M) * (int)sizeof(REAL), b, to.col0, to.n, asked, k);
            rk_wait(full + 8 * (ST + slot), phase ^ 1);
            if (asked + TILE_K <= k) ca.every(), cb.every();
            else ca.all(a, k), cb.all(b, k);
            rk_copies_arrive(full + 8 * slot);
        }
        asked = next_stage(asked, segment, share), ++step;
        if (++slot == ST) slot = 0, phase ^= 1;
    }
};

// Where the threads that multiply are in the ring of stages.
struct Reading {
    const REAL *tiles;
    int a, b;         // where this thread's lines begin, in the stage
    u32 full, phase;  // of the stage
    int slot;
    // The first operands of the first stage.
    __device__ __forceinline__ Reading(Ahead &v, const REAL *stages, u32 barriers, bool any) : tiles(stages), full(barriers), phase(0), slot(0) {
        Place place(threadIdx.x);
        a = anew(Ahead::place_a(place.m)), b = anew(SIZE(TRANS_A, TILE_M) + Ahead::place_b(place.n));
        if (!any) return;
        rk_wait(full, 0);
#pragma unroll
        for (int u = 0; u < FURTHER; ++u) v.read(u, tiles + a, tiles + b, u * GRAIN);
    }
    // Give the stage back, and go to the next one.
    __device__ __forceinline__ void pass() {
        __syncwarp();
        if (threadIdx.x % 32 == 0) rk_arrive(full + 8 * ST);
        bool wraps = ++slot == ST;
        int back = wraps ? ST : 0;
        a += (1 - back) * STAGE, b += (1 - back) * STAGE, full += 8 - 8 * back, slot -= back, phase ^= (u32)wraps;
    }
    // The steps of a segment; `more`: another one follows.
    __device__ __forceinline__ void segment(REAL (&acc)[RM][RN], Ahead &v, int n_step, bool more) {
#pragma unroll 1
        for (; n_step >= TILE_K; n_step -= TILE_K) {
            bool wraps = slot + 1 == ST;
            int further = wraps ? 1 - ST : 1;
            chain_stage(acc, v, tiles + a, tiles + b, further * STAGE, more || n_step > TILE_K, full + 8 * further, phase ^ (u32)wraps);
            pass();
        }
        if (n_step == 0) return;
        chain_end(acc, v, tiles + a, tiles + b, n_step);
        pass();
    }
};

// All segments of the block; returns the number of them. The stages begin at `raw`, after their barriers.
__device__ __forceinline__ int few_results(REAL (&acc)[RM][RN], REAL *room, const REAL *a, const REAL *b, unsigned char *raw, const Results &to,
                                           int k, int segment, int n_segment, const Sharing &share) {
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0) - THREADS / 32;  // the compiler sees that a warp has one
    const bool copier = warp >= 0;
    u32 full = rk_shared_address(raw) - BARRIERS;
    int at = share.rank * segment, round = 0;
    __syncthreads();  // the barriers are there
    Filling filling{a, b, full + BARRIERS, full, k, warp, 0, 0, at, 0};
    Ahead v;
    Reading reading(v, (const REAL *)raw, full, !copier && at < k);
    if (copier)
#pragma unroll 1
        for (int s = 0; s < ST - 1; ++s) filling.next(to, segment, share);
#pragma unroll 1
    while (at < k) {
        int n_step = min(segment, k - at), last = at + (n_step - 1) / TILE_K * TILE_K, next = next_stage(last, segment, share);
        if (copier)
#pragma unroll 1
            for (int s = 0; s < n_step; s += TILE_K) filling.next(to, segment, share);
        else reading.segment(acc, v, n_step, next < k);
        if (CLUSTER > 1 || !copier) add_made(acc, room, to, last, round++, n_segment, segment, k, share);
        at = next;
    }
    return round;
}

// det_gemm.cu for few results, whose time is that of a chain: COPIERS threads fill the stages, THREADS threads multiply.
// Operands are read some steps ahead, across stages.
#pragma once

#if DMMA
#define GRAIN (RM * RN <= 16 ? 16 : 8)  // steps of the sum that are read, and multiplied, together
#else
#define GRAIN (RM * RN <= 2 ? 4 * UNIT : RM * RN <= 4 ? 2 * UNIT : UNIT)
#endif
#define RING 2  // of them in registers
#define GRAINS (TILE_K / GRAIN)
#define PARTS (DMMA ? RM * RN / 4 : GRAIN)  // of the work of a grain
static_assert(GRAINS % RING == 0 && ST >= 3 && THREADS % 32 == 0 && !TURN, "macros");

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

// Steps of the sum in a stage, `left` of them if it is not WHOLE; the first ones of the later stage are read.
template <bool WHOLE>
__device__ __forceinline__ void chain_stage(REAL (&acc)[RM][RN], Ahead &v, const REAL *as, const REAL *bs, int later, int left) {
#pragma unroll
    for (int u = 0; u < GRAINS; ++u) {
        if (!WHOLE && u * GRAIN >= left) break;
        if (!WHOLE) v.end(u % RING, left - u * GRAIN);
        v.multiply<0, 1>(u % RING, acc);  // waits for its operands, when no others are on their way
        hold(acc);
        int from = u + 1 < GRAINS ? 0 : later;  // where there is no later stage, what is read is not used
        v.read((u + 1) % RING, as + from, bs + from, (u + 1) % GRAINS * GRAIN);
        v.multiply<1, PARTS>(u % RING, acc);
    }
}

// All segments of the block; returns the number of them. Threads that copy ask for the stages; a stage and the one after it have
// arrived when the others pass the barrier, which is one line for all threads.
__device__ __forceinline__ int few_results(REAL (&acc)[RM][RN], REAL *room, const REAL *a, const REAL *b, unsigned char *raw, const Results &to,
                                           int k, int segment, int n_segment, const Sharing &share) {
    const bool copier = threadIdx.x >= THREADS;
    const REAL *tiles = (const REAL *)raw;
    u32 shared = rk_shared_address(raw);
    Place place(threadIdx.x);
    int to_a = Ahead::place_a(place.m), to_b = SIZE(TRANS_A, TILE_M) + Ahead::place_b(place.n);
    int at = share.rank * segment, asked = at, round = 0;
    Ahead v;
    auto ask = [&](int step) {
        if (asked < k) {
            u32 stage = shared + step % ST * STAGE * (int)sizeof(REAL);
            CopiesA ca(stage, a, to.row0, to.m, asked, k);
            CopiesB cb(stage + SIZE(TRANS_A, TILE_M) * (int)sizeof(REAL), b, to.col0, to.n, asked, k);
            if (asked + TILE_K <= k) ca.every(), cb.every();
            else ca.all(a, k), cb.all(b, k);
        }
        rk_copies_end();
        asked = next_stage(asked, segment, share);
    };
    if (copier)
#pragma unroll 1
        for (int s = 0; s < ST - 1; ++s) ask(s);
#pragma unroll 1
    for (int step = 0; at < k; ++step) {
        if (copier) rk_copies_left<ST - 3>();
        __syncthreads();
        if (copier) {
            ask(step + ST - 1);
        } else {
            const REAL *now = tiles + step % ST * STAGE;
            int left = k - at, later = (step % ST + 1 == ST ? 1 - ST : 1) * STAGE;
            if (step == 0) v.read(0, now + to_a, now + to_b, 0);
            if (left >= TILE_K) chain_stage<true>(acc, v, now + to_a, now + to_b, later, left);
            else chain_stage<false>(acc, v, now + to_a, now + to_b, later, left);
        }
        if (ends_segment(at, segment, k) && (CLUSTER > 1 || !copier)) add_made(acc, room, to, at, round++, n_segment, segment, k, share);
        at = next_stage(at, segment, share);
    }
    return round;
}

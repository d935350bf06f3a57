// Segments of a tile of det_gemm.cu that several blocks have left in memory, added left to right. Uses its macros, Results, Sharing.
#pragma once

#if BY_SHARES
static_assert(RM * RN % 4 == 0, "results of a thread are added by fours");
#define DEEP (COPIERS ? 4 : 8)  // segments whose results are on their way, as registers allow
// Add the segments of results x0 to x0 + 3 of a thread, and write these.
__device__ __forceinline__ void add_four(const Results &to, Place place, const Sharing &share, int x0) {
    constexpr int wide = VEC_C == UNIT && (DMMA || (ACROSS_B && RN % UNIT == 0)) ? UNIT : 1;  // neighbours that exist together
    REAL v[4];
#pragma unroll
    for (int x = 0; x < 4; ++x) {
        const REAL *before = ADD % 2 ? to.at(place, x0 + x) : nullptr;
        v[x] = before ? *before : (REAL)0;
    }
    const REAL *from = share.made + (u64)x0 * THREADS;
#pragma unroll 1
    for (int number = 0; number < share.parts; number += DEEP) {
        REAL more[DEEP][4];
#pragma unroll
        for (int y = 0; y < DEEP; ++y) {
#pragma unroll
            for (int x = 0; x < 4; ++x) more[y][x] = from_l2(from + x * THREADS);
            if (number + y + 1 < share.parts) from += TILE_M * TILE_N;
        }
#pragma unroll
        for (int y = 0; y < DEEP; ++y)
#pragma unroll
            for (int x = 0; x < 4; ++x)
                if (number + y == 0 && ADD % 2 == 0) v[x] = more[y][x];  // 0 + -0 would be 0
                else if (number + y < share.parts) v[x] = v[x] + more[y][x];
    }
    x0 = anew(x0);
#pragma unroll
    for (int x = 0; x < 4; x += wide) {
        REAL *at = to.at(place, x0 + x);
        Some<wide> some;
#pragma unroll
        for (int u = 0; u < wide; ++u) some.v[u] = v[x + u];
        if (at) *(Some<wide> *)at = some;
    }
}
// Add this warp's share of the results.
__device__ __forceinline__ void add_share(const Results &to, Place place, const Sharing &share, Counts::Share mine) {
    const int n = RM * RN, each = (n / 4 + mine.of - 1) / mine.of * 4;
    u32 known = share.know();  // needed at the end only
#pragma unroll 1
    for (int x = mine.number * each, end = min(x + each, n); x < end; x += 4) add_four(to, place, share, x);
    share.reset(known, mine.of);
}
#endif

// Leave the results of a segment. Once those of all segments are there, write a share of the results, or all of them.
__device__ __forceinline__ void add_all(REAL (&acc)[RM][RN], REAL *room, const Results &to, Sharing share, int number) {
    Place place(anew(threadIdx.x));
    (void)room;
    share.made = anew(share.made);
    bool may_wait = share.may_wait();
    share.put(acc, number);
    Counts::Share mine = share.made_by(may_wait);
    if (mine.of == 0) return;
#if BY_SHARES
    add_share(to, place, share, mine);
#else
    share.sum(acc, [&](int x, REAL v) {
        const REAL *before = ADD % 2 ? to.at(place, x) : nullptr;
        return before ? *before + v : v;
    });
#if BY_ROWS
    write_rows(acc, room, to, false);
#else
    write_results(acc, to, place, false);
#endif
#endif
}

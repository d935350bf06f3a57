// The stages of det_gemm.cu's sums where all threads copy and multiply. Uses its macros, its copies and its steps.
#pragma once

// The terms from `first` to `last` of all k: all segments of the block, whose number is returned, or with STREAM a part of one. The
// inner loop asks for nothing but whether there is another stage, so that the addresses of its copies are computed between
// multiplications. It goes on as long as the stages asked for are whole and follow each other; where one is not, it is asked for
// before, and the loop copies nothing.
__device__ __forceinline__ int many_results(REAL (&acc)[RM][RN], REAL *room, const REAL *a, const REAL *b, unsigned char *raw, const Results &to,
                                            int first, int last, int k, int segment, int n_segment, const Sharing &share) {
    const REAL *tiles = (const REAL *)raw;
    u32 shared = rk_shared_address(raw);
    Place place(threadIdx.x);
    const REAL *first_a = lane_a(tiles, place.m), *first_b = lane_b(tiles + SIZE(TRANS_A, TILE_M), place.n);
    int at = first, asked = at, round = 0;  // asked: where the stage that is asked for next begins
    bool inside = to.row0 + TILE_M <= to.m && to.col0 + TILE_N <= to.n;
    int now = 0, empty = ST - 1;  // the stage whose steps are multiplied; how many have to be filled before
    Ahead ahead;
    auto arrived = [&]() {
        rk_copies_end();
        rk_copies_left<ST - 2>();
        __syncthreads();
#if DMMA && (RN == 4 || RM == 6) && !defined(RK_ON_CPU) && __CUDA_ARCH__ == 900
        // A branch, before which ptxas for Hopper moves no later products: they are multiplied while operands of the stage are read.
        asm volatile("{ .reg .pred p; setp.ge.s32 p, %0, 0; @p bra DONE; trap; DONE: }" ::"r"(k) : "memory");
#endif
    };
    while (at < last) {
        int until = min(segment - (at & (segment - 1)), last - at) / TILE_K, n = 0;  // whole stages
        if (empty == 0 && (CopiesA::asks || inside)) {
            n = min(until, (last - asked) / TILE_K);
            if (CLUSTER > 1 || TURNS) n = min(n, (segment - (asked & (segment - 1))) / TILE_K);
        }
        CopiesA ca(shared, a, to.row0, to.m, asked, k);
        CopiesB cb(shared + SIZE(TRANS_A, TILE_M) * (int)sizeof(REAL), b, to.col0, to.n, asked, k);
        if (n > 0) {
            asked = next_stage(asked + (n - 1) * TILE_K, segment, share);
        } else {
            n = asked < last ? min(until, 1) : until;
            u32 stage = (empty ? ST - 1 - empty : now ? now - 1 : ST - 1) * STAGE * (int)sizeof(REAL);
            if (asked < last) ca.to_stage(stage).all(a, k), cb.to_stage(stage).all(b, k);
            asked = next_stage(asked, segment, share);
            if (empty) {
                rk_copies_end();
                if (--empty) continue;
                rk_copies_left<ST - 2>();
                __syncthreads();
                ahead.begin(first_a, first_b);
                continue;
            }
            ca.left = cb.left = 0;
        }
        ca.from = anew(ca.from), cb.from = anew(cb.from);
        at += max(n - 1, 0) * TILE_K;
        if (n > 0)
#pragma unroll 1
            do {
                int next = now + 1 == ST ? 0 : now + 1, later = (now ? now - 1 : ST - 1) * STAGE * (int)sizeof(REAL);
                if (!DMMA) later = anew(later);  // else it is computed again for each copy
                CopiesA copy_a = ca.to_stage(later);
                CopiesB copy_b = cb.to_stage(later);
                multiply(acc, ahead, first_a + now * STAGE, first_b + now * STAGE, first_a + next * STAGE, first_b + next * STAGE, copy_a, copy_b, arrived);
                ca.next_steps(), cb.next_steps(), now = next;
                ca.from = anew(ca.from), cb.from = anew(cb.from);
            } while (--n);
        else
            multiply_end(acc, ahead, first_a + now * STAGE, first_b + now * STAGE, last - at);
        if (ends_segment(at, segment, STREAM ? k : last)) {
            add_made(acc, room, to, at, round++, n_segment, segment, k, share);
#if RM * RN <= 64
            ahead.begin(first_a + now * STAGE, first_b + now * STAGE);  // once more: meanwhile its registers are free
#endif
        }
        at = next_stage(at, segment, share);
    }
    return round;
}

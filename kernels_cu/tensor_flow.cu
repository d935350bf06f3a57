// Accumulate expected counts of tied weights, on tensor cores: F = F + sum over the steps (sample, use) of up child,
// without the weight itself.
//
//   blocks, uses, tiles, chains, totals and position as in sum_flow.cu; up (n_sample, 2 n_up), child (n_sample, 2 n_x) u16, wide:
//   of flow_steps.cu with SPLIT, high words of a sample, then its low words; lines of uses are at multiples of 8
//
// Grid: n_tile, BI children x BJ nodes of a block of weights; WI x WJ warps. Order: samples ascending; the uses of a sample in parts of
// 64; of each step of 16 of a part the low words of children by the high ones of nodes, then high by low, then of each step high by
// high, one chain from 0, which is added to F. Then exp(lift + value) of its wide steps, ascending. A chain F ends after every BLOCK-th sample, and CHAIN parts.
// Asynchronous copies fill ST stages of PARTS parts of UNITS steps of 16; what follows the last use is 0.
// Macros: UNITS, BI, BJ, WI, WJ, ST (as in det_gemm_mma.cu).
// mirror: rpukit/circuits/_mirror/tensor_counts.py::tensor_flow
// op: rpukit.circuits.ops.counts.tensor_flow
// bits: arch-exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: UNITS=2 ST=4
// check: UNITS=2 BI=64 BJ=64 WI=2 WJ=4 ST=3
// check: UNITS=1 BI=16 BJ=16 WI=1 WJ=1 ST=4
// source: docs/semantics/circuits.md, section 6.
#define SPLIT 1
#ifndef BI
#define BI 64
#endif
#define P_MN 1
#define Q_MN 1
#include "circuit_tensor.cuh"

#ifndef UNITS
#define UNITS 4
#endif
#define OF_PART (16 * UNITS)  // steps
#define PARTS (4 / UNITS)
// A warp's place that the compiler takes for new, so that it keeps no addresses of rare uses in registers.
__device__ __forceinline__ Warp anew(Warp own) {
#ifndef RK_ON_CPU
    asm volatile("" : "+r"(own.i), "+r"(own.j));
#endif
    return own;
}

// Where the steps of a stage are: uses of samples, in parts.
struct Steps {
    int n_sample, uses, per_sample;
    // Sample and use of a row of stage t; false: there is none.
    __device__ __forceinline__ bool find(int t, int row, int &b, int &u) const {
        int part = t * PARTS + row / OF_PART;
        b = per_sample == 1 ? part : part / per_sample;
        u = (part - b * per_sample) * OF_PART + row % OF_PART;
        return row < PARTS * OF_PART && b < n_sample && u < uses;
    }
};

// Ask for both planes of LINES lines of stage t; `at` is where the lines of each use begin in a plane of n_line.
template <int LINES, class At>
__device__ __forceinline__ void ask_lines(u32 to, const Steps &steps, int t, const u16 *from, i64 plane, const At *at, int first, int n_line) {
    constexpr int across = LINES / 8, n = LINES * BK / 8;
#pragma unroll
    for (int q = 0; q < (n + N_THREAD - 1) / N_THREAD; ++q) {
        int e = threadIdx.x + q * N_THREAD, row = e / across, line = e % across * 8, b, u;
        if (n % N_THREAD && e >= n) break;
        bool there = steps.find(t, row, b, u) && line < n_line;
        const u16 *high = from + (there ? b * 2 * plane + (i64)at[u] + first + line : 0);
        int n_byte = there ? 2 * min(n_line - line, 8) : 0;
        u32 place_of = to + place<LINES, 1>(line, row);
        rk_copy<16>(place_of, high, n_byte);
        rk_copy<16>(place_of + LINES * BK * 2, there ? high + plane : from, n_byte);
    }
}

extern "C" __global__ void __launch_bounds__(N_THREAD, 1)
tensor_flow(int n_sample, int n_use, i64 n_up, i64 n_x, const i64 *position, const i64 *block_theta, const int *block_use, const int *use_up,
            const int *use_size, const int *use_count, const i64 *use_x, const int *tile_block, const int *tile_place, const float *theta,
            const u16 *up, const u16 *child, const int *wide, float *chains, double *totals) {
    extern __shared__ __align__(128) unsigned char raw[];
    int *far = (int *)(raw + ST * 2 * STAGE);  // (ST, BK)
    u32 shared = rk_shared_address(raw);
    int k = tile_block[blockIdx.x], c0 = tile_place[2 * blockIdx.x], m0 = tile_place[2 * blockIdx.x + 1];
    int first = block_use[k], uses = block_use[k + 1] - first, width = use_size[first], size = width - m0, count = use_count[first] - c0;
    Steps steps{n_sample, uses, (uses + OF_PART - 1) / OF_PART};
    int n_part = n_sample * steps.per_sample, n_stage = (n_part + PARTS - 1) / PARTS;
    u64 base = block_theta[k] + (u64)c0 * width + m0;
    Warp own = own_part();
    auto at_weight = [&](int i, int j) { return base + (u64)i * width + j; };
    auto inside = [&](int i, int j) { return i < count && j < size; };
    auto ask_child = [&](int slot, int t) { ask_lines<BI>(shared + slot * 2 * STAGE, steps, t, child, n_x, use_x + first, c0, count); };
    auto ask_up = [&](int slot, int t) {
        ask_lines<BJ>(shared + slot * 2 * STAGE + 2 * OF_P, steps, t, up, n_up, use_up + first, m0, size);
        for (int row = threadIdx.x; row < BK; row += N_THREAD) {
            int b, u;
            bool there = steps.find(t, row, b, u);
            rk_copy<4>(rk_shared_address(far + slot * BK + row), wide + (there ? (u64)b * n_use + first + u : 0), there ? 4 : 0);
        }
        rk_copies_end();
    };
    wait_for_earlier();
    for (int t = 0; t < ST - 1; ++t) {
        ask_child(t, t);
        ask_up(t, t);
    }
    int passed = (int)(*position % BLOCK) * steps.per_sample;  // parts of the block of samples, before these
    int settled = end_of_chain(passed, steps.per_sample) - passed;  // parts before the chains are settled
    bool fresh = passed == 0, ended = false;  // chains that begin, and end, with the block of samples are 0
    float f[MI][MJ][4], part[MI][MJ][4] = {};
    each_chain(own, [&](int x, int i, int j) { f[x / (4 * MJ)][x / 4 % MJ][x % 4] = !fresh && inside(i, j) ? chains[at_weight(i, j)] : 0.0f; });
    for (int t = 0, slot = 0; t < n_stage; ++t, slot = slot + 1 == ST ? 0 : slot + 1) {
        rk_copies_left<ST - 2>();
        int some = 0;
        for (int row = threadIdx.x; row < BK; row += N_THREAD) some |= far[slot * BK + row];
        bool some_far = __syncthreads_or(some);
        int later = slot == 0 ? ST - 1 : slot - 1;  // where the stage before was
        if (some_far) {  // their words are of exponents
            for (int e = threadIdx.x; e < (BI + BJ) / 8 * BK; e += N_THREAD) {
                int row = e % BK, line = e / BK * 8, q = line - BI;
                if (!far[slot * BK + row]) continue;
                u32 at = slot * 2 * STAGE + (line < BI ? place<BI, 1>(line, row) : 2 * OF_P + place<BJ, 1>(q, row));
                float4 *high = (float4 *)(raw + at), *low = (float4 *)(raw + at + (line < BI ? OF_P : OF_Q));
                *high = *low = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
            __syncthreads();
        }
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            int number = t * PARTS + p;
            multiply_split<UNITS>(part, shared + slot * 2 * STAGE, own, p * OF_PART, [&](int s) {
                if (p * UNITS + s == 0) ask_child(later, t + ST - 1);
                if (p * UNITS + s == 1) ask_up(later, t + ST - 1);
            });
            add_part(f, part);
#pragma unroll 1
            for (int row = p * OF_PART; some_far && row < (p + 1) * OF_PART; ++row) {
                int b, u;
                if (!steps.find(t, row, b, u) || !far[slot * BK + row]) continue;
                const u16 *below = child + 2 * n_x * b + use_x[first + u] + c0, *above = up + 2 * n_up * b + use_up[first + u] + m0;
                each_chain(anew(own), [&](int x, int i, int j) {
                    if (!inside(i, j) || !(theta[at_weight(i, j)] > 0.0f)) return;
                    float &sum = f[x / (4 * MJ)][x / 4 % MJ][x % 4];
                    sum = sum + rk_exp(rk_joined(above[j], above[n_up + j]) + rk_joined(below[i], below[n_x + i]));
                });
            }
            if (number + 1 != settled || number >= n_part) continue;
            ended = settled == n_part;
            if (passed + settled == BLOCK * steps.per_sample) passed -= BLOCK * steps.per_sample;
            settled = end_of_chain(passed + settled, steps.per_sample) - passed;
            each_chain(anew(own), [&](int x, int i, int j) {
                if (inside(i, j)) settle(f[x / (4 * MJ)][x / 4 % MJ][x % 4], totals[at_weight(i, j)]);
            });
        }
    }
    rk_copies_left<0>();  // of steps that there are not: none is under way when the block ends
    each_chain(anew(own), [&](int x, int i, int j) {
        if (!(fresh && ended) && inside(i, j)) chains[at_weight(i, j)] = f[x / (4 * MJ)][x / 4 % MJ][x % 4];
    });
}

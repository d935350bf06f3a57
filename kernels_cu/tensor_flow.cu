// Accumulate expected counts of tied weights, on tensor cores: F = F + sum over the steps (sample, use) of up child,
// without the weight itself.
//
//   blocks, uses, tiles, chains, totals and position as in sum_flow.cu; up (n_sample, 2 n_up), child (n_sample, 2 n_x) u16, wide:
//   of flow_steps.cu with SPLIT, high words of a sample, then its low words; lines of uses are at multiples of 8
//
// Grid: n_tile, BI children x BJ nodes of a block of weights; WI x WJ warps. Order: samples ascending; the uses of a sample in parts of
// 64; of each step of 16 of a part the low words of children by the high ones of nodes, then high by low, then of each step high by
// high, one chain from 0, which is added to F. Then exp(lift + value) of its wide steps, ascending. A chain F ends after every BLOCK-th sample, and CHAIN parts.
// Asynchronous copies fill ST stages of PARTS parts of UNITS steps of 16, which are more than one only where all uses of a sample are
// one part; what follows the last use is 0.
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

// Where the steps of a stage are: uses of samples, in parts. With several parts a stage each has all uses of a sample.
struct Steps {
    int n_sample, uses, b, u;  // first sample, and its first use
    __device__ __forceinline__ int sample(int row) const { return b + (PARTS > 1 ? row / OF_PART : 0); }
    __device__ __forceinline__ int use(int row) const { return u + row % OF_PART; }
    __device__ __forceinline__ bool has(int row) const { return row < PARTS * OF_PART && sample(row) < n_sample && use(row) < uses; }
    __device__ __forceinline__ void go_on() {
        if (PARTS > 1) b += PARTS;
        else if ((u += OF_PART) >= uses) u = 0, ++b;
    }
};

// A thread's copies of LINES lines of each stage, both planes; `at` is where the lines of each use begin in a plane of n_line. What
// follows the lines of a use up to a multiple of 8 is copied too, and goes into no weight.
template <int LINES, class At> struct UseCopies {
    static constexpr int across = LINES / 8, n = LINES * BK / 8, COUNT = (n + N_THREAD - 1) / N_THREAD, APART = N_THREAD / across;
    static constexpr bool even = OF_PART % APART == 0;  // rows of all threads' copy q are in one part
    static_assert(N_THREAD % across == 0, "a thread has one line");
    const u16 *from;
    const At *at;
    const u16 *own[PARTS > 1 ? COUNT : 1];  // with several parts a stage
    i64 plane;
    u32 spot;
    int row, line;
    bool some;
    __device__ __forceinline__ int part_of(int q) const { return even ? q * APART / OF_PART : (row + q * APART) / OF_PART; }
    __device__ __forceinline__ int use_of(int q) const { return even ? row + q * APART % OF_PART : (row + q * APART) % OF_PART; }
    __device__ __forceinline__ bool has(const Steps &steps, int q) const {
        return some && row + q * APART < PARTS * OF_PART && steps.b + part_of(q) < steps.n_sample && steps.u + use_of(q) < steps.uses;
    }
    __device__ __forceinline__ void begin(const Steps &steps, const u16 *first_of, i64 n_plane, const At *at_use, int first, int n_line) {
        row = threadIdx.x / across, line = threadIdx.x % across * 8, some = line < n_line;
        from = first_of + (some ? first + line : 0), at = at_use, plane = n_plane, spot = place<LINES, 1>(line, row);
#pragma unroll
        for (int q = 0; q < COUNT && PARTS > 1; ++q) own[q] = from + 2 * plane * part_of(q) + (has(steps, q) ? (i64)at[use_of(q)] : 0);
    }
    __device__ __forceinline__ void ask(u32 to, const Steps &steps) {
#pragma unroll
        for (int q = 0; q < COUNT; ++q) {
            if (n % N_THREAD && row + q * APART >= BK) break;
            bool there = has(steps, q);
            const u16 *high = PARTS > 1 ? own[q] : from + (there ? 2 * plane * steps.b + (i64)at[steps.u + use_of(q)] : 0);
            u32 into = to + (LINES >= 64 && APART % 8 == 0 ? spot + q * APART * 128 : place<LINES, 1>(line, row + q * APART));
            rk_copy<16>(into, high, there ? 16 : 0);
            rk_copy<16>(into + LINES * BK * 2, high + plane, there ? 16 : 0);
            if (PARTS > 1) own[q] += 2 * PARTS * plane;
        }
    }
};

extern "C" __global__ void __launch_bounds__(N_THREAD, 1)
tensor_flow(int n_sample, int n_use, i64 n_up, i64 n_x, const i64 *position, const i64 *block_theta, const int *block_use, const int *use_up,
            const int *use_size, const int *use_count, const i64 *use_x, const int *tile_block, const int *tile_place, const float *theta,
            const u16 *up, const u16 *child, const int *wide, float *chains, double *totals) {
    extern __shared__ __align__(128) unsigned char raw[];
    int *far = (int *)(raw + ST * 2 * STAGE);  // (ST, BK)
    u32 shared = rk_shared_address(raw);
    int k = tile_block[blockIdx.x], c0 = tile_place[2 * blockIdx.x], m0 = tile_place[2 * blockIdx.x + 1];
    int first = block_use[k], uses = block_use[k + 1] - first, width = use_size[first], size = width - m0, count = use_count[first] - c0;
    Steps now{n_sample, uses, 0, 0}, next = now;  // those that are added, and that are asked for
    int per_sample = (uses + OF_PART - 1) / OF_PART, n_part = n_sample * per_sample, n_stage = (n_part + PARTS - 1) / PARTS;
    u64 base = block_theta[k] + (u64)c0 * width + m0;
    Warp own = own_part();
    auto at_weight = [&](int i, int j) { return base + (u64)i * width + j; };
    auto inside = [&](int i, int j) { return i < count && j < size; };
    UseCopies<BI, i64> of_child;
    UseCopies<BJ, int> of_up;
    of_child.begin(now, child, n_x, use_x + first, c0, count);
    of_up.begin(now, up, n_up, use_up + first, m0, size);
    auto ask_child = [&](int slot) { of_child.ask(shared + slot * 2 * STAGE, next); };
    auto ask_up = [&](int slot) {
        of_up.ask(shared + slot * 2 * STAGE + 2 * OF_P, next);
#pragma unroll
        for (int q = 0; q < (BK + N_THREAD - 1) / N_THREAD; ++q) {
            int row = threadIdx.x + q * N_THREAD;
            bool there = next.has(row);
            if (row < BK) rk_copy<4>(rk_shared_address(far + slot * BK + row), wide + (there ? (u64)next.sample(row) * n_use + first + next.use(row) : 0), there ? 4 : 0);
        }
        rk_copies_end();
        next.go_on();
    };
    wait_for_earlier();
    for (int t = 0; t < ST - 1; ++t) {
        ask_child(t);
        ask_up(t);
    }
    int passed = (int)(*position % BLOCK) * per_sample;  // parts of the block of samples, before these
    int settled = end_of_chain(passed, per_sample) - passed;  // parts before the chains are settled
    bool fresh = passed == 0, ended = false;  // chains that begin, and end, with the block of samples are 0
    float f[MI][MJ][4], part[MI][MJ][4] = {};
    each_chain(own, [&](int x, int i, int j) { f[x / (4 * MJ)][x / 4 % MJ][x % 4] = !fresh && inside(i, j) ? chains[at_weight(i, j)] : 0.0f; });
    for (int t = 0, slot = 0; t < n_stage; ++t, slot = slot + 1 == ST ? 0 : slot + 1) {
        rk_copies_left<ST - 2>();
        int some = 0;
#pragma unroll
        for (int q = 0; q < (BK + N_THREAD - 1) / N_THREAD; ++q)
            if (threadIdx.x + q * N_THREAD < BK) some |= far[slot * BK + threadIdx.x + q * N_THREAD];
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
                if (p * UNITS + s == 0) ask_child(later);
                if (p * UNITS + s == 1) ask_up(later);
            });
            add_part(f, part);
#pragma unroll 1
            for (int row = p * OF_PART; some_far && row < (p + 1) * OF_PART; ++row) {
                if (!now.has(row) || !far[slot * BK + row]) continue;
                int b = now.sample(row), u = now.use(row);
                const u16 *below = child + 2 * n_x * b + use_x[first + u] + c0, *above = up + 2 * n_up * b + use_up[first + u] + m0;
                each_chain(anew(own), [&](int x, int i, int j) {
                    if (!inside(i, j) || !(theta[at_weight(i, j)] > 0.0f)) return;
                    float &sum = f[x / (4 * MJ)][x / 4 % MJ][x % 4];
                    sum = sum + rk_exp(rk_joined(above[j], above[n_up + j]) + rk_joined(below[i], below[n_x + i]));
                });
            }
            if (number + 1 != settled || number >= n_part) continue;
            ended = settled == n_part;
            if (passed + settled == BLOCK * per_sample) passed -= BLOCK * per_sample;
            settled = end_of_chain(passed + settled, per_sample) - passed;
            each_chain(anew(own), [&](int x, int i, int j) {
                if (inside(i, j)) settle(f[x / (4 * MJ)][x / 4 % MJ][x % 4], totals[at_weight(i, j)]);
            });
        }
        now.go_on();
    }
    rk_copies_left<0>();  // of steps that there are not: none is under way when the block ends
    each_chain(anew(own), [&](int x, int i, int j) {
        if (!(fresh && ended) && inside(i, j)) chains[at_weight(i, j)] = f[x / (4 * MJ)][x / 4 % MJ][x % 4];
    });
}

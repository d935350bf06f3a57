// Precompute scaled exponentials as bfloat16, for tensor cores.
// For each list of inputs: the largest value M, and exp(value - M).
//
//   first (n_list) i64, count, at (n_list) int: a list's first input, its inputs, its first column of `staged`, a multiple of 8;
//   values of inputs are products of rows (inputs, WIDTH), -1 for none, of values (n_sample, n_value) double; WIDTH 0: input k is
//   column k. LIFT: lifts of values and flows instead.
//   staged (n_sample, ld) u16 (bits), 0 up to the next multiple of 8; top M, rounded up to float32: of a sample's list s at
//   [s * top_step] of its ld_top
//   SPLIT: what rounding leaves is rounded likewise, and follows after `apart` words
//   KEEP: the numbers themselves go to kept (n_sample, kept_line) too, of a list from column kept_at on
//
// Grid: (n_list, samples), 128 threads or TEAM; TEAM threads have a sample's list, pairs of neighbours each. A maximum has no order.
// Macros: WIDTH, LIFT, SPLIT, KEEP, TEAM (32, or more for long lists), HELD (values of a thread in registers, even).
// mirror: rpukit/circuits/_mirror/tensor.py::tensor_stage
// op: rpukit.circuits.ops.sum_tensor_core.tensor_stage
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: LIFT=1
// check: WIDTH=2
// check: WIDTH=2 SPLIT=1
// check: LIFT=1 SPLIT=1
// check: WIDTH=2 TEAM=32 HELD=4
// check: LIFT=1 SPLIT=1 TEAM=256 HELD=4
// check: LIFT=1 KEEP=1 TEAM=32 HELD=8
// source: docs/semantics/circuits.md, sections 5 and 6.
#include "circuit_split.cuh"
#include "circuit_rows.cuh"

#ifndef LIFT
#define LIFT 0
#endif
#ifndef KEEP
#define KEEP 0
#endif
#define WIDTH_OR_1 (WIDTH ? WIDTH : 1)
#ifndef TEAM
#define TEAM 128
#endif
#ifndef HELD
#define HELD 8  // of longer lists the other values are read again
#endif
#define TEAMS (TEAM < 128 ? 128 / TEAM : 1)
#define THREADS (TEAM * TEAMS)
static_assert(TEAM == 32 || TEAMS == 1, "warps, or a block, for a list");

struct Inputs {
    const int *rows;
    const double *values;  // of the sample
    const float *flows;
    i64 first;
    int count;
    __device__ __forceinline__ const int *place(int k) const { return WIDTH ? rows + (first + min(k, count - 1)) * WIDTH : nullptr; }
    __device__ __forceinline__ double operator()(int k, const int *place) const {
        i64 at = first + min(k, count - 1);
        double v = WIDTH ? product_of(place, values) : LIFT ? lift_of(values[at], flows[at]) : values[at];
        return k < count ? v : IMPOSSIBLE;
    }
    __device__ __forceinline__ double operator()(int k) const { return (*this)(k, place(k)); }
};

// Input x of a thread.
__device__ __forceinline__ int index_of(int x) { return x / 2 * 2 * TEAM + 2 * (threadIdx.x % TEAM) + x % 2; }

extern "C" __global__ void __launch_bounds__(THREADS)
tensor_stage(int n_sample, int n_value, int ld, int ld_top, int top_step, const i64 *first, const int *count, const int *at, const int *rows,
             const double *values, const float *flows, i64 apart, u16 *staged, float *top,
             int kept_line, const int *kept_at, float *kept) {
    __shared__ float found[2][THREADS / 32];
    int s = blockIdx.x, n = count[s], column = at[s], turn = 0, own = threadIdx.x % TEAM;
    Inputs input{rows, nullptr, nullptr, first[s], n};
    int places[HELD][WIDTH_OR_1];  // of inputs, which are the same for all samples
#pragma unroll
    for (int x = 0; x < HELD * WIDTH; ++x) places[x / WIDTH_OR_1][x % WIDTH_OR_1] = input.place(index_of(x / WIDTH_OR_1))[x % WIDTH_OR_1];
    wait_for_earlier();
    for (int b = blockIdx.y * TEAMS + threadIdx.x / TEAM; b < n_sample; b += gridDim.y * TEAMS) {
        input.values = values + (u64)b * n_value;
        input.flows = LIFT ? flows + (u64)b * n_value : nullptr;
        double held[HELD];
        float m = NOTHING;
#pragma unroll
        for (int x = 0; x < HELD; ++x) {
            held[x] = input(index_of(x), places[x]);
            m = fmaxf(m, reference_of(held[x]));
        }
        for (int k = HELD * TEAM + own; k < n; k += TEAM) m = fmaxf(m, reference_of(input(k)));
#pragma unroll
        for (int x = 16; x; x /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, x));
        if (TEAM > 32) {
            if (own % 32 == 0) found[turn][own / 32] = m;
            __syncthreads();
#pragma unroll
            for (int w = 0; w < THREADS / 32; ++w) m = fmaxf(m, found[turn][w]);
            turn ^= 1;  // the next sample's are written while these are read
        }
        auto scaled = [&](double v) { return m > NOTHING ? exp_below((float)(v - (double)m)) : 0.0f; };
        u32 *line = (u32 *)(staged + (u64)b * ld + column), *rest = (u32 *)(staged + apart + (u64)b * ld + column);
        float *own_line = KEEP ? kept + (u64)b * kept_line + kept_at[s] : nullptr;
        auto put = [&](int pair, float low, float high) {
            u32 both = rk_pack16(low, high);
            line[pair] = both;
            if (KEEP && 2 * pair < n) own_line[2 * pair] = low;
            if (KEEP && 2 * pair + 1 < n) own_line[2 * pair + 1] = high;
            if (SPLIT) rest[pair] = rk_pack_rest(both, low, high);
        };
#pragma unroll
        for (int x = 0; x < HELD; x += 2) {
            int pair = x / 2 * TEAM + own;
            if (2 * pair < (n + 7) / 8 * 8) put(pair, scaled(held[x]), scaled(held[x + 1]));
        }
        for (int pair = HELD / 2 * TEAM + own; 2 * pair < (n + 7) / 8 * 8; pair += TEAM)
            put(pair, scaled(input(2 * pair)), scaled(input(2 * pair + 1)));
        if (own == 0) top[(u64)b * ld_top + s * top_step] = m;
    }
}

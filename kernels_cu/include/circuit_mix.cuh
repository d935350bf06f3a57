// Sums of weights times exponentials, which both directions of a layer of sums are made of:
//   log sum_k W(i, k) exp(v_k)  for the outputs i of a tile and a few samples.
// Inputs k in segments of 64: M the largest v of a segment, one chain of fma of W exp(v - M); segments are put
// together from the left as pairs (largest, sum). M and exp(v - M) are made once for all outputs of a block.
//
// A block has COLUMNS x LANES threads: a thread makes the chains of one segment, of OUTPUTS / COLUMNS outputs and all
// SAMPLES; LANES segments at a time. Then the threads put together a share of the (output, sample) each.
#pragma once
#include "circuit_rows.cuh"

#ifndef OUTPUTS
#define OUTPUTS 16
#endif
#ifndef LANES
#define LANES 16
#endif
#ifndef SAMPLES
#define SAMPLES 1
#endif
#ifndef VEC  // weights that lie along k and are read at a time: 1 or 4
#define VEC 1
#endif
#define COLUMNS (OUTPUTS < 32 ? OUTPUTS : 32)
#define EACH (OUTPUTS / COLUMNS)
#define THREADS (COLUMNS * LANES)
#define WARPS (THREADS / 32)
#define GROUP (SAMPLES < 8 ? SAMPLES : 8)
#define SHARE (LANES / WARPS * GROUP <= 8 ? LANES / WARPS : 8 / GROUP)
#define AHEAD (EACH * SAMPLES <= 16 && sizeof(REAL) == 4 ? SEGMENT : 0)  // weights in registers
#define TOGETHER (EACH * SAMPLES > 32 ? 8 : 16)  // steps whose weights are read at a time
#define PAIRS ((OUTPUTS * SAMPLES + THREADS - 1) / THREADS)
#define TURNS PAIRS  // pairs whose values are read together at the end
// Samples lie side by side, for reads of 16 bytes; padding spreads what a warp writes over the banks. Segments that a
// warp reads at a time lie in different banks.
#define STEP (SAMPLES < 8 ? SAMPLES : SAMPLES + 4)
#define STRIDE (SEGMENT * STEP + (SAMPLES < 4 ? 4 : SAMPLES))
#define UNIT (16 / (int)sizeof(REAL) < SAMPLES ? 16 / (int)sizeof(REAL) : SAMPLES)

struct __align__(sizeof(REAL) * UNIT) Samples { REAL v[UNIT]; };
struct __align__(sizeof(REAL) * VEC) Weights { REAL v[VEC]; };

struct Staged {
    REAL top[SAMPLES][LANES], before[SAMPLES][LANES], now[SAMPLES][LANES];
    REAL largest[2][SAMPLES];  // of the segments so far; two, since one is read while the other is written
};
union Area {
    REAL w[LANES][STRIDE];  // exp(v - M), of step k and sample b at [k * STEP + b]
    REAL part[SAMPLES][LANES][OUTPUTS + 1];
};

// Sums of the pairs p = threadIdx.x + q * THREADS: output p % OUTPUTS of sample p / OUTPUTS.
struct Mixture {
    REAL total[PAIRS];
    int turn;  // which `largest` counts
};

__device__ __forceinline__ REAL total_of(const Mixture &mixture, int q) { return mixture.total[q]; }

__device__ __forceinline__ Mixture begin_mixture(Staged &staged) {
    Mixture mixture;
    for (int b = threadIdx.x; b < SAMPLES; b += THREADS) staged.largest[0][b] = NOTHING;
#pragma unroll
    for (int q = 0; q < PAIRS; ++q) mixture.total[q] = (REAL)0;
    mixture.turn = 0;
    return mixture;
}

// The exponentials of segments first / SEGMENT and so on, and their largest values. A warp has GROUP samples of SHARE
// segments at a time, so that their reads are under way together; where an input lies is read once for all samples,
// and first by the caller.
// Where the inputs of a warp's segments from s0 on lie.
template <class Input, class Place>
__device__ __forceinline__ void find_places(Place (&place)[2 * SHARE], int first, int s0, int n_in, Input input) {
#pragma unroll
    for (int x = 0; x < 2 * SHARE; ++x)
        place[x] = input.place(min(first + (s0 + x / 2 * WARPS) * SEGMENT + x % 2 * 32 + (int)threadIdx.x % 32, n_in - 1));
}
template <class Input, class Place>
__device__ __forceinline__ void stage(Staged &staged, Area &area, int n_sample, int first, int n_in, int n_segment, Input input,
                                      Place (&place)[2 * SHARE]) {
    int lane = threadIdx.x % 32;
    for (int s0 = threadIdx.x / 32; s0 < n_segment; s0 += WARPS * SHARE) {
        if (s0 >= WARPS) find_places(place, first, s0, n_in, input);
#pragma unroll 1
        for (int b0 = 0; b0 < SAMPLES; b0 += GROUP) {
            REAL v[GROUP][2 * SHARE];
#pragma unroll
            for (int y = 0; y < GROUP * 2 * SHARE; ++y) {
                int b = b0 + y / (2 * SHARE), x = y % (2 * SHARE);
                bool inside = b < n_sample && first + (s0 + x / 2 * WARPS) * SEGMENT + x % 2 * 32 + lane < n_in;
                v[y / (2 * SHARE)][x] = inside ? input.value(b, place[x]) : NOTHING;
            }
#pragma unroll
            for (int y = 0; y < GROUP * SHARE; ++y) {
                int g = y / SHARE, b = b0 + g, q = y % SHARE, s = s0 + q * WARPS;
                REAL v0 = v[g][2 * q], v1 = v[g][2 * q + 1], m = rk_max(v0, v1);
#pragma unroll
                for (int x = 16; x; x /= 2) m = rk_max(m, __shfl_xor_sync(~0u, m, x));
                if (s >= n_segment) continue;
                bool some = m > NOTHING;
                area.w[s][lane * STEP + b] = some ? exp_below(v0 - m) : (REAL)0;
                area.w[s][(lane + 32) * STEP + b] = some ? exp_below(v1 - m) : (REAL)0;
                if (lane == 0) staged.top[b][s] = m;
            }
        }
    }
}

// What the pairs are scaled by before they are put together.
__device__ __forceinline__ void make_scales(Staged &staged, int turn, int n_segment) {
    for (int j = threadIdx.x; j < SAMPLES * n_segment; j += THREADS) {
        int b = j / n_segment, s = j % n_segment;
        REAL old = staged.largest[turn][b], m = staged.top[b][s];
#pragma unroll 8
        for (int q = 0; q < s; ++q) old = rk_max(old, staged.top[b][q]);
        REAL both = rk_max(old, m);
        staged.before[b][s] = old > NOTHING ? exp_below(old - both) : (REAL)0;
        staged.now[b][s] = m > NOTHING ? exp_below(m - both) : (REAL)0;
        if (s == n_segment - 1) staged.largest[turn ^ 1][b] = both;
    }
}

__device__ __forceinline__ void add_step(REAL (&sum)[EACH][SAMPLES], const REAL (&weight)[EACH], const REAL *w) {
#pragma unroll
    for (int b = 0; b < SAMPLES; b += UNIT) {
        Samples v = *(const Samples *)(w + b);
#pragma unroll
        for (int x = 0; x < EACH * UNIT; ++x) sum[x / UNIT][b + x % UNIT] = rk_fma(weight[x / UNIT], v.v[x % UNIT], sum[x / UNIT][b + x % UNIT]);
    }
}

// Weights of VEC steps for all outputs of a thread.
__device__ __forceinline__ void read_weights(REAL (&weight)[VEC][EACH], const REAL *const (&from)[EACH], u64 at) {
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        Weights few = *(const Weights *)(from[e] + at);
#pragma unroll
        for (int x = 0; x < VEC; ++x) weight[x][e] = few.v[x];
    }
}

// Add inputs 0 to n_in - 1, W(i, k) = weights[i * out_step + k * in_step]. All threads come. `input.place(k)` says where
// an input lies, `input.value(sample, place)` reads it.
// VEC 4: in_step is 1, rows of weights begin at multiples of 16 bytes, n_in is a multiple of 4.
template <class Input>
__device__ __forceinline__ void mix(Mixture &mixture, Staged &staged, Area &area, int n_sample, int n_out, int n_in,
                                    const REAL *weights, u64 out_step, u64 in_step, Input input) {
    int i = threadIdx.x % COLUMNS, l = threadIdx.x / COLUMNS;
    const REAL *line[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) line[e] = weights + min(i + e * COLUMNS, n_out - 1) * out_step;
    for (int first = 0; first < n_in; first += LANES * SEGMENT) {
        int n_segment = min(LANES, (n_in - first + SEGMENT - 1) / SEGMENT), k0 = first + l * SEGMENT;
        REAL ahead[AHEAD / VEC + 1][VEC][EACH];  // weights are asked for before what they are multiplied by is made
        bool whole = AHEAD && k0 + SEGMENT <= n_in;
        if (whole) {
#pragma unroll
            for (int k = 0; k < AHEAD; k += VEC) read_weights(ahead[k / VEC], line, (k0 + k) * in_step);
        }
        decltype(input.place(0)) place[2 * SHARE];
        find_places(place, first, threadIdx.x / 32, n_in, input);
        wait_for_earlier();
        __syncthreads();
        stage(staged, area, n_sample, first, n_in, n_segment, input, place);
        __syncthreads();
        make_scales(staged, mixture.turn, n_segment);
        mixture.turn ^= 1;
        REAL sum[EACH][SAMPLES];
#pragma unroll
        for (int x = 0; x < EACH * SAMPLES; ++x) sum[x / SAMPLES][x % SAMPLES] = (REAL)0;
        if (whole) {
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) add_step(sum, ahead[k / VEC][k % VEC], area.w[l] + k * STEP);
        } else if (l < n_segment) {
            int n = min(SEGMENT, n_in - k0);
#pragma unroll(TOGETHER / VEC)
            for (int k = 0; k < n; k += VEC) {
                REAL weight[VEC][EACH];
                read_weights(weight, line, (k0 + k) * in_step);
#pragma unroll
                for (int x = 0; x < VEC; ++x) add_step(sum, weight[x], area.w[l] + (k + x) * STEP);
            }
        }
        __syncthreads();  // the parts lie where the exponentials were
        if (l < n_segment) {
#pragma unroll
            for (int x = 0; x < EACH * SAMPLES; ++x) area.part[x % SAMPLES][l][i + x / SAMPLES * COLUMNS] = sum[x / SAMPLES][x % SAMPLES];
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < PAIRS; ++q) {
            int p = threadIdx.x + q * THREADS, b = p / OUTPUTS;
            if (p >= OUTPUTS * SAMPLES) break;
#pragma unroll 8
            for (int s = 0; s < n_segment; ++s)
                mixture.total[q] = rk_fma(mixture.total[q], staged.before[b][s], area.part[b][s][p % OUTPUTS] * staged.now[b][s]);
        }
    }
}

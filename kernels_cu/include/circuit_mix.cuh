// Sums of weights times exponentials, which both directions of a layer of sums are made of:
//   log sum_k W(i, k) exp(v_k)  for the outputs i of a tile and a few samples.
// Inputs k in segments of 64: M the largest v of a segment, one chain of fma of W exp(v - M); segments are combined
// from the left as pairs (largest, sum). M and exp(v - M) are made once for all outputs of a block.
//
// A block has COLUMNS x LANES threads: a thread makes the chains of one segment, of OUTPUTS / COLUMNS outputs and all
// SAMPLES; LANES segments at a time. Then each thread combines a share of the (output, sample) pairs.
#pragma once
#include "circuit_rows.cuh"
#include "rk_gate.cuh"

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
#define PLACES (2 * LANES / WARPS)  // inputs of a thread
#define AHEAD (EACH * SAMPLES <= 16 && sizeof(REAL) == 4 ? SEGMENT : 0)  // weights in registers
#define SPAN (AHEAD && SAMPLES < 4 ? 4 / SAMPLES : 1)  // steps whose exponentials are read at a time
#define TOGETHER (EACH * SAMPLES > 32 ? 8 : 16)  // steps whose weights are read at a time
#define PAIRS ((OUTPUTS * SAMPLES + THREADS - 1) / THREADS)
#define TURNS PAIRS  // pairs whose values are read together at the end
// Samples lie side by side, for reads of 16 bytes; padding spreads what a warp writes over the banks. Segments that a
// warp reads at a time lie in different banks.
#define STEP (SAMPLES < 8 ? SAMPLES : SAMPLES + 4)
#define STRIDE (SEGMENT * STEP + (SAMPLES < 4 ? 4 : SAMPLES))
#define UNIT (16 / (int)sizeof(REAL) < SAMPLES ? 16 / (int)sizeof(REAL) : SAMPLES)

struct __align__(sizeof(REAL) * UNIT) Samples { REAL v[UNIT]; };
struct __align__(SPAN > 1 ? 16 : sizeof(REAL)) Span { REAL v[SPAN * SAMPLES]; };
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

// Where the inputs of a warp's segments lie, of those from `first` on.
template <class Input, class Place>
__device__ __forceinline__ void find_places(Place (&place)[PLACES], int first, int n_in, Input input) {
#pragma unroll
    for (int x = 0; x < PLACES; ++x)
        place[x] = input.place(min(first + ((int)threadIdx.x / 32 + x / 2 * WARPS) * SEGMENT + x % 2 * 32 + (int)threadIdx.x % 32, n_in - 1));
}

// The exponentials of segments first / SEGMENT and so on, and their largest values. A warp has GROUP samples of SHARE
// segments at a time, so that their reads are under way together: nothing branches between them.
template <class Input, class Place>
__device__ __forceinline__ void stage(Staged &staged, Area &area, int n_sample, int first, int n_in, int n_segment, Input input,
                                      const Place (&place)[PLACES]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < PLACES / 2; c += SHARE) {
        int s0 = threadIdx.x / 32 + c * WARPS;
        if (s0 >= n_segment) break;
#pragma unroll 1
        for (int b0 = 0; b0 < SAMPLES; b0 += GROUP) {
            double far[GROUP * SHARE * 2];
            REAL v[GROUP * SHARE * 2], m[GROUP * SHARE];
#pragma unroll
            for (int y = 0; y < GROUP * SHARE * 2; ++y)
                far[y] = input.value(min(b0 + y / (2 * SHARE), n_sample - 1), place[2 * c + y % (2 * SHARE)]);
#pragma unroll
            for (int y = 0; y < GROUP * SHARE * 2; ++y) {
                int k = first + (s0 + y / 2 % SHARE * WARPS) * SEGMENT + y % 2 * 32 + lane;
                far[y] = b0 + y / (2 * SHARE) < n_sample && k < n_in ? far[y] : IMPOSSIBLE;
            }
#pragma unroll
            for (int y = 0; y < GROUP * SHARE; ++y) m[y] = largest_of_warp(reference_of(rk_max(far[2 * y], far[2 * y + 1])));
#pragma unroll
            for (int y = 0; y < GROUP * SHARE * 2; ++y) v[y] = far[y] == IMPOSSIBLE ? NOTHING : (REAL)(far[y] - (double)m[y / 2]);
            exps_below(v);
#pragma unroll
            for (int y = 0; y < GROUP / UNIT * SHARE * 2; ++y) {  // UNIT samples at a time
                int g = y / (2 * SHARE) * UNIT, s = s0 + y / 2 % SHARE * WARPS;
                Samples few;
#pragma unroll
                for (int u = 0; u < UNIT; ++u) few.v[u] = v[(g + u) * 2 * SHARE + y % (2 * SHARE)];
                if (s < n_segment) *(Samples *)&area.w[s][(lane + y % 2 * 32) * STEP + b0 + g] = few;
            }
#pragma unroll
            for (int y = 0; y < GROUP * SHARE; ++y)
                if (lane == 0 && s0 + y % SHARE * WARPS < n_segment) staged.top[b0 + y / SHARE][s0 + y % SHARE * WARPS] = m[y];
        }
    }
}

// Scale factors of the pairs before they are combined.
__device__ __forceinline__ void make_scales(Staged &staged, int turn, int n_segment) {
    for (int j = threadIdx.x; j < SAMPLES * n_segment; j += THREADS) {
        int b = j / n_segment, s = j % n_segment;
        REAL old = staged.largest[turn][b], m = staged.top[b][s];
#pragma unroll
        for (int q = 0; q < LANES; ++q) {
            REAL other = staged.top[b][q];
            old = q < s ? rk_max(old, other) : old;
        }
        REAL both = rk_max(old, m), down[2] = {old > NOTHING ? old - both : NOTHING, m > NOTHING ? m - both : NOTHING};
        exps_below(down);
        staged.before[b][s] = down[0];
        staged.now[b][s] = down[1];
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

// Weights of a thread's chain that are held in registers, from `from` on; tied weights last for many layers.
struct Held {
    REAL few[AHEAD / VEC + 1][VEC][EACH];
    const REAL *from;
};

// Add inputs 0 to n_in - 1, W(i, k) = weights[i * out_step + k * in_step]. All threads come. `input.place(k)` says where
// an input lies, the first ones in `place`; `input.value(sample, place)` reads it, once the gate is open. `also()` is called
// when the first inputs have been read.
// VEC 4: in_step is 1, rows of weights begin at multiples of 16 bytes, n_in is a multiple of 4.
template <class Input, class Place, class Also>
__device__ __forceinline__ void mix(Mixture &mixture, Staged &staged, Area &area, Gate &gate, Held &held, int n_sample, int n_out,
                                    int n_in, const REAL *weights, u64 out_step, u64 in_step, Input input, Place (&place)[PLACES], Also also) {
    int i = threadIdx.x % COLUMNS, l = threadIdx.x / COLUMNS;
    const REAL *line[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) line[e] = weights + min(i + e * COLUMNS, n_out - 1) * out_step;
    for (int first = 0; first < n_in; first += LANES * SEGMENT) {
        int n_segment = min(LANES, (n_in - first + SEGMENT - 1) / SEGMENT), k0 = first + l * SEGMENT;
        bool whole = AHEAD && k0 + SEGMENT <= n_in;
        const REAL *from = line[0] + k0 * in_step;
        if (whole && (EACH > 1 || held.from != from)) {  // weights are requested before their factors are computed
            held.from = from;
#pragma unroll
            for (int k = 0; k < AHEAD; k += VEC) read_weights(held.few[k / VEC], line, (k0 + k) * in_step);
        }
        if (first) find_places(place, first, n_in, input);
        gate.open();
        __syncthreads();
        stage(staged, area, n_sample, first, n_in, n_segment, input, place);
        if (!first) also();
        __syncthreads();
        make_scales(staged, mixture.turn, n_segment);
        mixture.turn ^= 1;
        REAL sum[EACH][SAMPLES];
#pragma unroll
        for (int x = 0; x < EACH * SAMPLES; ++x) sum[x / SAMPLES][x % SAMPLES] = (REAL)0;
        if (whole && SPAN > 1) {
#pragma unroll
            for (int k = 0; k < AHEAD; k += SPAN) {
                Span few = *(const Span *)(area.w[l] + k * STEP);
#pragma unroll
                for (int x = 0; x < SPAN * EACH * SAMPLES; ++x) {
                    int q = k + x / (EACH * SAMPLES), e = x / SAMPLES % EACH, b = x % SAMPLES;
                    sum[e][b] = rk_fma(held.few[q / VEC][q % VEC][e], few.v[(q - k) * SAMPLES + b], sum[e][b]);
                }
            }
        } else if (whole) {
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) add_step(sum, held.few[k / VEC][k % VEC], area.w[l] + k * STEP);
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
        __syncthreads();  // the parts reuse the memory of the exponentials
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

// The same for a launch of one layer.
template <class Input>
__device__ __forceinline__ void mix(Mixture &mixture, Staged &staged, Area &area, int n_sample, int n_out, int n_in,
                                    const REAL *weights, u64 out_step, u64 in_step, Input input) {
    Gate gate(nullptr);
    Held held;
    held.from = nullptr;
    decltype(input.place(0)) place[PLACES];
    find_places(place, 0, n_in, input);
    mix(mixture, staged, area, gate, held, n_sample, n_out, n_in, weights, out_step, in_step, input, place, [] {});
}

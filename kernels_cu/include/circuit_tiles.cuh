// The sums of circuit_mix.cuh for many samples: from exponentials that sum_stage.cu made once for all outputs.
//   w (n_segment * 64, n_column) the exponentials, 0 where a segment has no input; top (n_segment, n_column) largest values
//
// A block makes OUTPUTS x SAMPLES sums, LANES segments at a time; a thread ROWS x COLUMNS chains of one segment. Asynchronous
// copies fill ST stages of STEPS inputs, and load the largest values. Then each thread combines a share of the (output,
// sample) pairs. Weights lie along the outputs with ALONG, else along the inputs.
#pragma once
#include "circuit_rows.cuh"
#include "rk_shared.cuh"

#ifndef OUTPUTS
#define OUTPUTS 64
#endif
#ifndef LANES
#define LANES 2
#endif
#ifndef SAMPLES
#define SAMPLES 64
#endif
#ifndef ROWS
#define ROWS 8
#endif
#ifndef COLUMNS  // 4 or 8
#define COLUMNS 4
#endif
#ifndef VEC  // weights that are copied at a time: 1 or 4
#define VEC 1
#endif
#define STEPS 16
#ifndef ST
#define ST 4
#endif
#define CHUNKS (SEGMENT / STEPS)
#define ACROSS (OUTPUTS / ROWS)
#define DOWN (SAMPLES / COLUMNS)
#define TEAM (ACROSS * DOWN)  // threads of a segment
#define THREADS (TEAM * LANES)
#define PAIRS (OUTPUTS * SAMPLES / THREADS)
static_assert(SAMPLES <= 4 * OUTPUTS && THREADS / SAMPLES % LANES == 0, "the turned sums fit in the parts; a thread for each scale");
#define LINE (ALONG ? OUTPUTS : STEPS + 4)  // padding: what is read together lies in different banks
#define OF_WEIGHTS (ALONG ? STEPS * OUTPUTS : OUTPUTS * LINE)
#define OF_PART (SAMPLES + (SAMPLES < 16 ? 4 : 8))
#define MOST_TURNS (THREADS > 256 && WIDTH > 2 ? 4 : 8)
#define TURNS (PAIRS < MOST_TURNS ? PAIRS : MOST_TURNS)  // pairs whose values are read together at the end

struct __align__(16) Four { REAL v[4]; };
struct Staged { REAL largest[1][SAMPLES]; };
struct __align__(16) Area {
    REAL ring[ST][LANES][OF_WEIGHTS + STEPS * SAMPLES];
    REAL part[LANES][OUTPUTS][OF_PART];
    REAL top[2][LANES][SAMPLES];  // of the current segments and of the next ones
    REAL scale[LANES][2][SAMPLES];  // what the sums so far, and a segment's part, are multiplied by
};
// Sums of the pairs p = threadIdx.x + q * THREADS: output p % OUTPUTS of sample p / OUTPUTS.
struct Mixture {
    const REAL *totals;  // (SAMPLES, OUTPUTS + 1)
    int turn;
};
__device__ __forceinline__ REAL total_of(const Mixture &mixture, int q) {
    int p = threadIdx.x + q * THREADS;
    return mixture.totals[p / OUTPUTS * (OUTPUTS + 1) + p % OUTPUTS];
}
// A segment: its first weight and how far apart lines of weights are, where it is among those that are staged, and how
// many inputs it has; 0: there is none.
struct Span {
    const REAL *weights;
    int step, number, n;
};

// Ask for STEPS inputs of a segment from k0 on.
__device__ __forceinline__ void copy_weights(REAL *to, Span span, int k0, int n_out) {
    constexpr int along = (ALONG ? OUTPUTS : STEPS) / VEC, n = OUTPUTS * STEPS / VEC;
#pragma unroll
    for (int q = threadIdx.x % TEAM; q < n; q += TEAM) {
        int line = q / along, at = q % along * VEC, k = k0 + (ALONG ? line : at), i = ALONG ? at : line;
        bool there = k < span.n && i < n_out;
        u32 at_weight = ALONG ? (u32)k * span.step + i : (u32)i * span.step + k;
        const REAL *from = span.weights + (there ? at_weight : 0u);
        rk_copy<VEC * sizeof(REAL)>(rk_shared_address(to + line * LINE + at), from, there ? VEC * sizeof(REAL) : 0);
    }
}
__device__ __forceinline__ void copy_staged(REAL *to, Span span, int k0, const REAL *w, int n_column, int n_here) {
    constexpr int along = SAMPLES / 4, n = STEPS * along;
#pragma unroll
    for (int q = threadIdx.x % TEAM; q < n; q += TEAM) {
        int k = q / along, b = q % along * 4;
        bool there = span.n > 0 && b < n_here;
        const REAL *from = w + (there ? (u32)(k0 + k) * n_column + b : 0u);
        rk_copy<16>(rk_shared_address(to + OF_WEIGHTS + k * SAMPLES + b), from, there ? 16 : 0);
    }
}

// The largest values of a segment; `top` of its first sample.
__device__ __forceinline__ void copy_top(REAL *to, Span span, const REAL *top, int n_column, int n_here) {
    int b = threadIdx.x % TEAM * 4;
#pragma unroll
    for (int x = 0; x < SAMPLES; x += 4 * TEAM) {
        bool there = span.n > 0 && b + x < n_here;
        if (b + x < SAMPLES) rk_copy<16>(rk_shared_address(to + b + x), top + (there ? (u64)span.number * n_column + b + x : 0), there ? 16 : 0);
    }
}

__device__ __forceinline__ int output_of(int r, int i) { return ALONG ? r / 4 * (4 * ACROSS) + i * 4 + r % 4 : i + r * ACROSS; }
__device__ __forceinline__ int sample_of(int c, int j) { return c / 4 * (4 * DOWN) + j * 4 + c % 4; }

// STEPS inputs of a thread's chains: output_of(r, i) of sample_of(c, j).
__device__ __forceinline__ void multiply(REAL (&sum)[ROWS][COLUMNS], const REAL *at, int i, int j) {
    const REAL *staged = at + OF_WEIGHTS;
#pragma unroll
    for (int k0 = 0; k0 < STEPS; k0 += 4) {
        Four weight[ALONG ? 1 : ROWS];
        if (!ALONG) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) weight[ALONG ? 0 : r] = *(const Four *)(at + output_of(r, i) * LINE + k0);
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            Four of[ROWS / 4], v[COLUMNS / 4];
#pragma unroll
            for (int c = 0; c < COLUMNS; c += 4) v[c / 4] = *(const Four *)(staged + (k0 + u) * SAMPLES + sample_of(c, j));
            if (ALONG) {
#pragma unroll
                for (int r = 0; r < ROWS; r += 4) of[r / 4] = *(const Four *)(at + (k0 + u) * LINE + output_of(r, i));
            }
#pragma unroll
            for (int z = 0; z < ROWS * COLUMNS; ++z) {
                int r = z / COLUMNS, c = z % COLUMNS;
                sum[r][c] = rk_fma(ALONG ? of[r / 4].v[r % 4] : weight[ALONG ? 0 : r].v[u], v[c / 4].v[c % 4], sum[r][c]);
            }
        }
    }
}

// Line of the part of an output: what a warp writes together is in different banks. Of a sum of numbers without a bit in
// common, the sum of theirs.
__device__ __forceinline__ int line_of(int output) {
    return ALONG ? output / (4 * ACROSS) * (4 * ACROSS) + output % 4 * ACROSS + output / 4 % ACROSS : output;
}

// A thread's share of the scales of round `turn` of LANES segments; those that there are not add nothing. Returns the largest
// value so far, with that round, of the thread's sample.
__device__ __forceinline__ REAL make_scales(Area &area, int turn, int n_segment, REAL largest) {
    int b = threadIdx.x % SAMPLES, mine = threadIdx.x / SAMPLES % LANES;
    REAL old = largest, m = NOTHING;
#pragma unroll
    for (int g = 0; g < LANES; ++g) {
        REAL top = turn * LANES + g < n_segment ? area.top[turn % 2][g][b] : NOTHING;
        if (g == mine) old = largest, m = top;
        largest = rk_max(largest, top);
    }
    REAL both = rk_max(old, m);
    area.scale[mine][0][b] = old > NOTHING ? exp_below(old - both) : (REAL)0;
    area.scale[mine][1][b] = m > NOTHING ? exp_below(m - both) : (REAL)0;
    return largest;
}

// All inputs of OUTPUTS outputs, of samples from the first column of w and top on. `spans(s)` is segment s of n_segment,
// which is requested in ascending order. All threads take part.
template <class Spans>
__device__ __forceinline__ void mix_staged(Mixture &mixture, Staged &staged, Area &area, int n_here, int n_out, int n_segment,
                                           const REAL *w, const REAL *top, int n_column, Spans spans) {
    int team = threadIdx.x / TEAM, i = threadIdx.x % ACROSS, j = threadIdx.x % TEAM / ACROSS, b = threadIdx.x % SAMPLES;
    if (ACROSS == 8 && TEAM % 32 == 0) {  // 8 x 4 lanes, in pairs that read the same weights
        i = threadIdx.x / 2 % 8, j = threadIdx.x % TEAM / 32 * 4 + threadIdx.x / 16 % 2 * 2 + threadIdx.x % 2;
    }
    u64 of_segment = (u64)SEGMENT * n_column;
    int n_chunk = (n_segment + LANES - 1) / LANES * CHUNKS;
    REAL sum[ROWS][COLUMNS], largest = NOTHING, total[PAIRS];
    REAL *own = &area.part[0][line_of(threadIdx.x / SAMPLES)][b], *turned = &area.part[0][0][0];
    Span span = spans(team);
#pragma unroll
    for (int q = 0; q < PAIRS; ++q) total[q] = (REAL)0;
#pragma unroll
    for (int x = 0; x < ROWS * COLUMNS; ++x) sum[x / COLUMNS][x % COLUMNS] = (REAL)0;
#pragma unroll
    for (int t = 0; t < ST - 1; ++t) copy_weights(area.ring[t][team], span, t * STEPS, n_out);
    wait_for_earlier();
    copy_top(area.top[0][team], span, top, n_column, n_here);
#pragma unroll
    for (int t = 0; t < ST - 1; ++t) {
        copy_staged(area.ring[t][team], span, t * STEPS, w + span.number * of_segment, n_column, n_here);
        rk_copies_end();
    }
    for (int t = 0; t < n_chunk; ++t) {
        rk_copies_left<ST - 2>();
        __syncthreads();
        int next = t + ST - 1;
        if (next < n_chunk) {
            int k0 = next % CHUNKS * STEPS;
            if (k0 == 0) {
                span = spans(next / CHUNKS * LANES + team);
                copy_top(area.top[next / CHUNKS % 2][team], span, top, n_column, n_here);
            }
            copy_weights(area.ring[next % ST][team], span, k0, n_out);
            copy_staged(area.ring[next % ST][team], span, k0, w + span.number * of_segment, n_column, n_here);
        }
        rk_copies_end();
        multiply(sum, area.ring[t % ST][team], i, j);
        if (t % CHUNKS < CHUNKS - 1) continue;
#pragma unroll
        for (int y = 0; y < ROWS * COLUMNS; y += 4) {
            int r = y / COLUMNS, c = y % COLUMNS;
            Four four;
#pragma unroll
            for (int x = 0; x < 4; ++x) four.v[x] = sum[r][c + x], sum[r][c + x] = (REAL)0;
            *(Four *)&area.part[team][line_of(output_of(r, i))][sample_of(c, j)] = four;
        }
        largest = make_scales(area, t / CHUNKS, n_segment, largest);
        __syncthreads();
#pragma unroll
        for (int g = 0; g < LANES; ++g) {
            REAL before = area.scale[g][0][b], now = area.scale[g][1][b];
#pragma unroll
            for (int q = 0; q < PAIRS; ++q) {
                int line = g * OUTPUTS + line_of(q * (THREADS / SAMPLES));
                total[q] = rk_fma(total[q], before, own[line * OF_PART] * now);
            }
        }
    }
    __syncthreads();  // before the parts are written again, transposed
#pragma unroll
    for (int q = 0; q < PAIRS; ++q) turned[b * (OUTPUTS + 1) + threadIdx.x / SAMPLES + q * (THREADS / SAMPLES)] = total[q];
    if (threadIdx.x < SAMPLES) staged.largest[0][b] = largest;
    __syncthreads();
    mixture.totals = turned;
    mixture.turn = 0;
}

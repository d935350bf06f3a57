// Inputs and outputs of tile_forward through the periphery, with the bits of rk_periphery.cuh but few
// branches; and the work arrays shared by the kernels of one product. Mirror: rpukit/analog/_mirror/forward.py.
#pragma once
#include "rk_periphery.cuh"

// What converts inputs, or outputs, in registers.
struct Converter {
    float bound, step, noise, asymmetry;
    double per_step;
    bool rounds;
};
__device__ __forceinline__ Converter make_converter(float bound, float step, float noise, float asymmetry, float rounds) {
    return Converter{bound, step, noise, asymmetry, 1.0 / (double)step, rounds != 0.0f && step > 0.0f};
}
__device__ __forceinline__ Converter input_converter(const float *io) { return make_converter(io[0], io[1], io[2], io[3], io[10]); }
__device__ __forceinline__ Converter output_converter(const float *io) { return make_converter(io[4], io[5], io[6], io[7], io[11]); }

// As convert, with the bits of v / c.step but without its branches: a quotient of floats is never closer to the middle
// of two floats than 2^-49 of itself. (Below the normal floats it may be, where rint is 0 in any case.)
template <int DRAWS> __device__ __forceinline__ float convert_plainly(float v, const Converter &c, u32 word) {
    float q = (float)((double)v * c.per_step);
    if (DRAWS) q = c.rounds ? q + (rk_uniform(word) - 0.5f) : q;
    return c.step > 0.0f ? rintf(q) * c.step : v;
}

// DRAWS 0: there is no rounding and no noise that draws.
template <int DRAWS>
__device__ __forceinline__ float make_input(float x, float factor, const Converter &c, u32 op, u64 line, u64 sample, u32 round, uint2 key) {
    uint4 b = make_uint4(0u, 0u, 0u, 0u);
    if (DRAWS && (c.rounds || c.noise > 0.0f)) b = rk_block(key, op, line, sample, round);
    float v = clip(convert_plainly<DRAWS>(x * factor, c, b.x), c.bound);
    if (DRAWS && c.noise > 0.0f) v = __fmaf_rn(c.noise, rk_normal(b.y), v);
    return v < 0.0f ? v * c.asymmetry : v;
}

// Outputs on their way through the noise of reading, whose variance is `read`, noise, conversion, bound test.
struct Output {
    float y, read, deviation;
    u64 line, sample;
    u32 round;
    float xi, xi_read;  // its draws
    u32 word;
    bool met;  // whether the bound counts and is passed
    float size;  // what it was passed with
};
// N independent ones at a time, to hide latency. DRAWS 0: without noise and stochastic rounding.
template <int N, int DRAWS, int READS> __device__ __forceinline__ void draw_lines(Output (&o)[N], u32 op, uint2 key) {
    if (!DRAWS) return;
    float p[N], xi[N], p_read[N], xi_read[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        uint4 b = rk_block(key, op, o[i].line, o[i].sample, o[i].round);
        p_read[i] = rk_uniform(b.x), p[i] = rk_uniform(b.y), o[i].word = b.z;
    }
    rk_normal_quantile_draws(p, xi);
    if (READS) rk_normal_quantile_draws(p_read, xi_read);
#pragma unroll
    for (int i = 0; i < N; ++i) o[i].xi = xi[i], o[i].xi_read = READS ? xi_read[i] : 0.0f;
}
template <int N, int DRAWS, int READS> __device__ __forceinline__ void output_lines(Output (&o)[N], const Converter &c, const float *io) {
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (DRAWS && READS && io[9] > 0.0f) o[i].y = __fmaf_rn(io[9] * __fsqrt_rn(o[i].read), o[i].xi_read, o[i].y);
    bool low = io[12] != 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        float y = o[i].y;
        y = y < 0.0f ? y * c.asymmetry : y;
        if (DRAWS) y = o[i].deviation > 0.0f ? __fmaf_rn(o[i].deviation, o[i].xi, y) : y;
        y = convert_plainly<DRAWS>(y, c, DRAWS ? o[i].word : 0u);
        o[i].met = c.bound > 0.0f && (y > c.bound || (y < -c.bound && low));
        o[i].size = fabsf(y);
        o[i].y = clip(y, c.bound);
    }
}

// Scale and reduction of the inputs of a sample in a round: 1, 2, 4, ..., or with io[15] 1, 1, 2, ..., the
// first with the sample's own scale and the others with that of the worst case.
__device__ __forceinline__ float scale_of(const float *alpha, int n_batch, int sample, int round, const float *io) {
    return io[13] != 0.0f ? alpha[(io[15] != 0.0f && round > 0 ? n_batch : 0) + sample] : 1.0f;
}
__device__ __forceinline__ float reduction(int round, const float *io) {
    return __int_as_float((127 + (io[15] != 0.0f && round > 0 ? round - 1 : round)) << 23);
}
__device__ __forceinline__ float input_factor(float alpha, float rho, const float *io) {
    return io[13] != 0.0f ? inverse(alpha, rho) : 1.0f / rho;
}

// What the kernels of one product pass on, in one array of 4-byte elements:
//   alpha (2, n_batch) scales, the second row of the worst case; need (n_batch) the round that a sample waits for;
//   met, late, count, failed, tried (n_batch), n_failed (1), peaks (n_batch, n_peak): see rk_rounds.cuh; then, from
//   `head` on, the inputs (n_batch, n_in) as converted for round 0, later those of the samples that failed for the round
//   that is forecast, later the results (sample, round, n_out) of all further rounds.
#define BY_ROUND 64
struct Work {
    float *alpha;
    int *need;
    u32 *met, *late, *count, *failed, *tried, *n_failed, *peaks;
    float *body;
};
__device__ __forceinline__ Work parts(float *work, int n_batch, int head) {
    u32 *met = (u32 *)work + 3 * (u64)n_batch, *late = met + n_batch, *count = late + n_batch, *failed = count + n_batch;
    u32 *tried = failed + n_batch, *n_failed = tried + n_batch;
    return Work{work, (int *)work + 2 * (u64)n_batch, met, late, count, failed, tried, n_failed, n_failed + 1, work + head};
}

// Outputs of a sample met a bound in round 0: list it, once.
__device__ __forceinline__ void note_failure(const Work &w, int s) {
    if (atomicMax(&w.need[s], 1) == 0) w.failed[atomicAdd(w.n_failed, 1u)] = (u32)s;
}

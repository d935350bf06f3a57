// Product of a tile with non-ideal wires and amplifiers, one round: tile_forward with voltage drops along the
// lines, offsets, series resistance, saturating outputs, and separate passes by the sign of the input.
//
//   For each pass (one, or the negative and the positive inputs apart), with n = n_in:
//     y = sum W v, and where they are needed, each its own chain: A = sum |W||v|, D = sum W (v g_j),
//     R = sum |W| v^2 or sum v^2, V = sum v;  g_j = 1 - (1 - j / n)^2
//     IR_DROP: a = A n / io_more[1], c = a (a (0.05 a - 0.2) + 0.5), y -= io_more[0] c D
//     OFFSET: o of the line, r = io_more[2], m = io_more[3]; m = 0: y = (1 - o) y / (1 + r |y|); else with
//       z = -m V: r = 0: y = (1 - o) y - 2 o z; r > 0: (1 - o)(y + z) / (1 + r |y + z|) - (1 + o) z / (1 + r |z|)
//     W_NOISE: y += w_noise sqrt(R) xi
//   then, of the sum of the passes (PASSES 3: of each, and the results are added):
//     SATURATES: y = io_more[4] y / (1 + |s y|), s of the line; then as tile_forward: asymmetry, noise,
//     conversion, bound test, clip, scale.
//
//   weight (n_out, n_in), or with TRANSPOSED (n_in, n_out); x, work, io, line_noise, status: tile_forward.cu
//   factor (as weight) float32, of the weight in the negative pass, or null
//   offset (n_out), slope (n_out)   float32, o and s of the lines, or null for 0
//   io_more (8)                     float32
//
// A thread owns one output of one sample; a block makes THREADS inputs at a time. Chains: rk_chain.cuh. Grid:
// (blocks of THREADS outputs, n_batch). Draws as tile_forward; pass p takes block round + 64 p of its line.
// Macros: TRANSPOSED, PASSES (1; 2 summed before, 3 after conversion), IR_DROP, OFFSET, SATURATES, W_NOISE.
// mirror: rpukit/analog/_mirror/nonideal.py::tile_nonideal
// op: rpukit.analog.product.nonideal.tile_nonideal
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: TRANSPOSED=1 PASSES=2 IR_DROP=1
// check: PASSES=3 OFFSET=1 SATURATES=1 W_NOISE=2
// check: IR_DROP=1 OFFSET=1 SATURATES=1 W_NOISE=1
// source: Agarwal et al., SISPAD 2016, for IR drop; Rasch et al., AICAS 2021; Le Gallo et al., APL Mach. Learn. 2023.
#include "pass_macros.cuh"
#include "rk_chain.cuh"
#include "rk_lines.cuh"
#define THREADS 128
#include "rk_wires.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
tile_nonideal(int n_batch, int n_out, int n_in, int round, u64 first_sample, u32 in_op, u32 out_op, const float *io,
              const float *io_more, const float *weight, const float *factor, const float *x, const float *line_noise,
              const float *offset, const float *slope, float *work, float *y, const int *status, u32 key0, u32 key1) {
    __shared__ float vs[THREADS];
    int s = blockIdx.y, i = blockIdx.x * THREADS + threadIdx.x;
    Work found = parts(work, n_batch, 0);
    bool halted = *status != 0, waits = found.need[s] >= round;
    if (halted || !waits) {  // the same for every thread of a block
        if (halted && round == 0 && i < n_out) y[(u64)s * n_out + i] = 0.0f;
        return;
    }
    const uint2 key = make_uint2(key0, key1);
    float a = scale_of(found.alpha, n_batch, s, round, io), rho = reduction(round, io);
    float sc = input_factor(a, rho, io), n = (float)n_in;
    u64 sample = first_sample + s;
    Sums<float> sums[PASSES > 1 ? 2 : 1];
    for (int p = 0; p < (PASSES > 1 ? 2 : 1); ++p)
        for (int k = 0; k < N_SUM; ++k) sums[p].part[k] = sums[p].total[k] = 0.0f;
    for (int j0 = 0; j0 < n_in; j0 += THREADS) {
        int own = j0 + threadIdx.x;
        __syncthreads();
        if (own < n_in) vs[threadIdx.x] = input_line(x[(u64)s * n_in + own], sc, io, in_op, own, sample, round, key);
        __syncthreads();
        if (i < n_out)
            for (int k = 0; k < min(THREADS, n_in - j0); ++k) {
                int j = j0 + k;
                u64 at = TRANSPOSED ? (u64)j * n_out + i : (u64)i * n_in + j;
                float v = vs[k], w = weight[at], p = 1.0f - (float)j / n, g = __fmaf_rn(-p, p, 1.0f);
#if PASSES > 1
                float below = factor ? w * factor[at] : w;
                add(sums[0], below, fminf(v, 0.0f), g);
                add(sums[1], w, fmaxf(v, 0.0f), g);
#else
                add(sums[0], w, v, g);
#endif
            }
        if ((j0 + THREADS) % RK_SEGMENT == 0 && j0 + THREADS < n_in)
            for (int p = 0; p < (PASSES > 1 ? 2 : 1); ++p)
                for (int k = 0; k < N_SUM; ++k) {
                    sums[p].total[k] += sums[p].part[k];
                    sums[p].part[k] = 0.0f;
                }
    }
    if (i >= n_out) return;
    bool met = false;
    float out = 0.0f, o = offset ? offset[i] : 0.0f, sat = slope ? slope[i] : 0.0f;
    float deviation = line_noise ? line_noise[i] : io[6];
    for (int p = 0; p < (PASSES > 1 ? 2 : 1); ++p) {
        uint4 b = rk_block(key, out_op, i, sample, round + 64 * p);
        for (int k = 0; k < N_SUM; ++k) sums[p].total[k] += sums[p].part[k];
        float part = through_wires(sums[p].total, n, o, io_more, io[9], b.x);
        if (PASSES == 3) part = out_stage(part, sat, deviation, io, io_more, b, &met);
        out += part;
    }
    if (PASSES != 3) out = out_stage(out, sat, deviation, io, io_more, rk_block(key, out_op, i, sample, round), &met);
    out *= io[8] * (a > 0.0f ? a : 1.0f) * rho;
    if (!(a > 0.0f) && io[14] != 0.0f) {
        out = 0.0f;
        met = false;
    }
    if (met) atomicMax(&found.need[s], round + 1);
    y[(u64)s * n_out + i] = out;
}

// Output stage of a tile's product whose sums come from det_gemm: the end of tile_forward, in place.
//
//   sums, y (n_batch, n_out) float32; y may be sums
//   io, line_noise, status: tile_forward.cu; work: rk_lines.cuh, with the scales
//
// Round 0, of all samples, or round `round` of those that wait for it. In round 0 with n_peak > 0, which is ceil(n_out / 32), word is left of outputs that met a bound, and
// how large they were, for rk_rounds.cuh; else of the samples that wait for the round after it, if there is one.
//
// Grid: n_batch times blocks of OUTPUTS outputs. A lane has TOGETHER outputs, 32 apart, so that a warp's are neighbours.
// Draws: tile_forward.cu.
// Macros: OUT_OP (tag of the draws), OUTPUT_DRAWS (0: outputs need none).
// mirror: rpukit/analog/_mirror/forward.py::tile_outputs
// op: rpukit.analog.product.ops.tile_outputs
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: OUTPUT_DRAWS=0
// source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017); Rasch et al., AICAS 2021.
#ifndef OUT_OP
#define OUT_OP 2
#endif
#ifndef OUTPUT_DRAWS
#define OUTPUT_DRAWS 1
#endif
#include "rk_early.cuh"
#include "rk_lines.cuh"
#define THREADS 128
#define TOGETHER 4
#define OUTPUTS (THREADS * TOGETHER)

extern "C" __global__ void __launch_bounds__(THREADS)
tile_outputs(int n_batch, int n_out, int head, int round, int n_round, int n_peak, u64 first_sample, const float *io,
             const float *line_noise, float *work, const float *sums, float *y, const int *status, u32 key0, u32 key1) {
    const int across = (n_out + OUTPUTS - 1) / OUTPUTS, s = blockIdx.x / across;
    const int lane = threadIdx.x % 32, i0 = blockIdx.x % across * OUTPUTS + (threadIdx.x - lane) * TOGETHER + lane;
    const float *row = sums + (u64)s * n_out;
    float *to = y + (u64)s * n_out;
    Work w = parts(work, n_batch, head);
    const Converter converter = output_converter(io);
    rk_wait_for_earlier();
    if (round > 0 && w.need[s] < BY_ROUND + round) return;  // the same for a block
    const float alpha = scale_of(w.alpha, n_batch, s, round, io), factor = io[8] * (alpha > 0.0f ? alpha : 1.0f) * reduction(round, io);
    const bool zero = *status != 0 || (!(alpha > 0.0f) && io[14] != 0.0f);
    Output o[TOGETHER];
#pragma unroll
    for (int u = 0; u < TOGETHER; ++u) {
        int i = min(i0 + 32 * u, n_out - 1);
        o[u].y = i0 + 32 * u < n_out ? row[i] : 0.0f;
        o[u].read = 0.0f;
        o[u].deviation = line_noise ? line_noise[i] : converter.noise;
        o[u].line = i;
        o[u].sample = first_sample + s;
        o[u].round = round;
    }
    draw_lines<TOGETHER, OUTPUT_DRAWS, 0>(o, OUT_OP, make_uint2(key0, key1));
    output_lines<TOGETHER, OUTPUT_DRAWS, 0>(o, converter, io);
    if (n_peak > 0 && i0 == 0) w.met[s] = w.late[s] = w.count[s] = 0;
    u32 most = 0;
#pragma unroll
    for (int u = 0; u < TOGETHER; ++u) {
        int i = i0 + 32 * u;
        bool inside = i < n_out;
        if (inside) to[i] = zero ? 0.0f : o[u].y * factor;
        u32 peak = __reduce_max_sync(0xffffffffu, inside && !zero && o[u].met ? __float_as_uint(o[u].size) : 0u);
        if (lane == 0 && inside && n_peak > 0) w.peaks[(u64)s * n_peak + i / 32] = peak;
        most = max(most, peak);
    }
    if (lane != 0 || !most || round + 1 >= n_round) return;
    if (n_peak > 0) note_failure(w, s);
    else atomicMax(&w.need[s], BY_ROUND + round + 1);
}

// A tile: outputs of an analog product, for each sample those of its first round within bounds, or of the last one.
//
//   ints: samples, rounds, length, first sample, whether rounds after the first have the scale of the worst case, whether
//   each line has a noise of its own, tag of the draws, key; floats: the periphery (16 numbers, tile_forward.cu),
//   reductions of the rounds; sums (rounds, samples, length), alpha (2, samples), clock (1), deviation (length) or
//   null, y (samples, length)
//
// A block takes a sample. Draws: op, line, sample of the clock, block of the round.
// mirror: rpukit/tiled/_mirror/analog.py::tiled_analog_outputs
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017).
#include "tiled_analog.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_analog_outputs(const i64 *ints, const float *floats, const float *sums, const float *alpha, const i64 *clock,
                     const float *deviation, float *y) {
    const i64 s = blockIdx.x, n = ints[0], rounds = ints[1], length = ints[2];
    const float *io = floats, bound = io[4];
    const bool stochastic = io[11] != 0.0f && io[5] > 0.0f, low = io[12] != 0.0f;
    const uint2 key = make_uint2((u32)ints[7], (u32)ints[8]);
    const u64 sample = (u64)(*clock + ints[3] + s);
    for (i64 r = 0; r < rounds; ++r) {
        bool nothing;
        float a = scale_in_round(io, alpha, n, s, ints[4] && r, nothing);
        float factor = io[8] * (a > 0.0f ? a : 1.0f) * floats[16 + r];
        bool met = false;
        for (i64 i = threadIdx.x; i < length; i += 256) {
            float std = ints[5] ? deviation[i] : io[6], v = sums[(r * n + s) * length + i];
            uint4 b = make_uint4(0u, 0u, 0u, 0u);
            if (stochastic || std > 0.0f) b = rk_block(key, (u32)ints[6], i, sample, (u32)r);
            v = v < 0.0f ? v * io[7] : v;
            if (std > 0.0f) v = __fmaf_rn(std, rk_normal(b.y), v);
            v = convert(v, io[5], stochastic, b.z);
            met = met || (bound > 0.0f && (v > bound || (v < -bound && low)));
            y[s * length + i] = nothing ? 0.0f : clip(v, bound) * factor;
        }
        if (!__syncthreads_or(met && !nothing)) break;
    }
}

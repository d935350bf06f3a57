// A tile: converted inputs of an analog product for each round of bound management.
//
//   ints: rows (rounds * samples), samples, length, first round, first sample, whether rounds after the first have the
//   scale of the worst case, tag of the draws, key; floats: the periphery (16 numbers, tile_forward.cu), reductions of
//   the rounds; x (samples, length), alpha (2, samples), clock (1), v (rounds, samples, length)
//
// One thread an element. Draws: op, line, sample of the clock, block of the round.
// mirror: rpukit/tiled/_mirror/analog.py::tiled_analog_inputs
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017).
#include "tiled_analog.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_analog_inputs(const i64 *ints, const float *floats, const float *x, const float *alpha, const i64 *clock, float *v) {
    i64 at = (i64)blockIdx.x * 256 + threadIdx.x, n = ints[1], length = ints[2];
    if (at >= ints[0] * length) return;
    i64 row = at / length, line = at % length, r = row / n, s = row % n;
    u32 round = (u32)(ints[3] + r);
    bool nothing;
    float a = scale_in_round(floats, alpha, n, s, ints[5] && round, nothing);
    float sc = floats[13] != 0.0f ? inverse(a, floats[16 + r]) : 1.0f / floats[16 + r];
    u64 sample = (u64)(*clock + ints[4] + s);
    uint2 key = make_uint2((u32)ints[7], (u32)ints[8]);
    v[at] = nothing ? 0.0f : input_line(x[s * length + line], sc, floats, (u32)ints[6], line, sample, round, key);
}

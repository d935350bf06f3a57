// A tile: noise management, the scales of samples.
//
//   ints: samples, length, mode, whether there is a scale of the worst case; floats: threshold, step, largest
//   resolution, bound; x (samples, length); alpha (2, samples): the scale, and that of the worst case or 1
//
// Modes: tile_scale.cu, without the running mean. A warp takes a sample; maxima have no order, and the two sums of mode 5
// are chains in ascending order by one lane.
// mirror: rpukit/tiled/_mirror/analog.py::tiled_analog_scale
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017).
#include "rk_scale.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_analog_scale(const i64 *ints, const float *floats, const float *x, float *alpha) {
    i64 s = (i64)blockIdx.x * 8 + threadIdx.x / 32, n = ints[0];
    const int length = (int)ints[1], mode = (int)ints[2], lane = threadIdx.x % 32;
    const float threshold = floats[0];
    bool inside = s < n;
    const float *row = x + (inside ? s : 0) * length;
    Extent e = {0u, 0u};
    for (int i = lane; i < length; i += 32) widen(e, row[i], true);
    widen_warp(e, true);
    if (!inside || lane) return;
    float limited = at_most(__uint_as_float(e.largest), threshold);
    float worst = mode == 5 || ints[3] ? np_sum(length, row, limited, floats[1], floats[2], floats[3]) : 1.0f;
    alpha[s] = mode == 5 ? worst : plain_scale(mode, e, threshold);
    alpha[n + s] = ints[3] ? worst : 1.0f;
}

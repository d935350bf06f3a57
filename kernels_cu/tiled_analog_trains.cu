// A tile: pulse trains of samples, of x and d.
//
//   ints: samples, lines of x, lines of d, words, first sample, bit length, whether scales start at 1, management, of the
//   length too, stochastic rounding, coding (pulse_trains.cu, IMPLICIT), key; floats: rate, granularity, factor on the
//   largest d, resolutions of x and d; x (samples, lines), d, clock (1), x_train (samples, words, lines), d_train
//
// A block takes a sample. Draws: as pulse_trains.cu.
// mirror: rpukit/tiled/_mirror/analog.py::tiled_analog_trains
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: Gokmen, Vlasov, Front. Neurosci. 10:333 (2016); update management: Gokmen et al. 11:538 (2017).
#include "pulse_slots.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_analog_trains(const i64 *ints, const float *floats, const float *x, const float *d, const i64 *clock, u32 *x_train,
                    u32 *d_train) {
    __shared__ u32 most[2];
    const i64 s = blockIdx.x, n_in = ints[1], n_out = ints[2], words = ints[3];
    const int coding = (int)ints[10];
    const float *xs = x + s * n_in, *ds = d + s * n_out;
    if (threadIdx.x < 2) most[threadIdx.x] = 0u;
    __syncthreads();
    for (i64 at = threadIdx.x; at < n_in + n_out; at += 256)  // sizes order as their bits do
        atomicMax(&most[at >= n_in], __float_as_uint(rk_abs(at < n_in ? xs[at] : ds[at - n_in])));
    __syncthreads();
    Scales scales = scales_of(floats[0], floats[1], (int)ints[5], (int)ints[6], (int)ints[7], (int)ints[8], floats[2],
                              __uint_as_float(most[0]), __uint_as_float(most[1]));
    const u64 sample = (u64)(*clock + ints[4] + s);
    const uint2 key = make_uint2((u32)ints[11], (u32)ints[12]);
    for (i64 at = threadIdx.x; at < n_in + n_out; at += 256) {
        bool is_x = at < n_in;
        i64 line = is_x ? at : at - n_in, stride = is_x ? n_in : n_out;
        float v = is_x ? xs[line] : ds[line];
        u32 op = is_x ? OP_X : OP_D;
        float p = rounded(rk_abs(v) * (is_x ? scales.of_x : scales.of_d), floats[is_x ? 3 : 4], (int)ints[9], key, op, line, sample);
        u32 *train = (is_x ? x_train : d_train) + s * words * stride + line;
        if (coding) {
            train[0] = coding == 1 ? implicit_train<1>(p, v < 0.0f, scales.length, !is_x)
                                   : implicit_train<2>(p, v < 0.0f, scales.length, !is_x);
            continue;
        }
        for (int w = 0; w < words; ++w)
            train[w * stride] = slots(p, v < 0.0f, w * SLOTS, min(w * SLOTS + SLOTS, scales.length), ~0u, key, op, line, sample);
    }
}

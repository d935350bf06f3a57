// Flip the sign of samples by the current chopper state of their slices.
//
// The chopper c[j] of slice j flips after the slice is read: event e reads slice (first_slice + e) mod n_slice
// after sample offset + e * period, so each slice at most once. It flips where the pass over the slices says so
// (regular_0 in the pass of the first event, regular_1 in the next one), or where U < prob.
//   out[s, j] = v[s, j] c[j], times -1 after the read where it flips
//   turns[e]: 1 the chopper is negative when slice e is read, 2 it flipped at the read before, 4 it flips now
//
//   v, out (n_batch, n_slice)   REAL, the side of the batch that has a line for each slice
//   chopper, switched (n_slice) int8, +-1; whether it flipped at the last read, or null. Neither is changed here:
//                               transfer_read does that, since all blocks of this kernel read them.
//   turns (n_event)             int32
//   status (1)                  not zero: do nothing
//
// Grid: (blocks of 256 slices, blocks of SAMPLES samples); those of the first samples write turns.
// Draws: op 16, index = number of the read mod 4096, sample = number div 4096, draw 0.
// Macros: REAL, SAMPLES.
// mirror: rpukit/analog/_mirror/transfer.py::chop_samples
// op: rpukit.analog.transfer.ops.chop_samples
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Rasch et al., Nature Communications 15:7133 (2024), algorithm 2.
#include "rk_real.cuh"
#include "rk_philox.cuh"

#ifndef SAMPLES
#define SAMPLES 8
#endif
#define OP_CHOPPER 16u

extern "C" __global__ void __launch_bounds__(256)
chop_samples(int n_batch, int n_slice, int n_event, int first_slice, int offset, int period, u64 number, int regular_0,
             int regular_1, float prob, const REAL *v, const signed char *chopper, const signed char *switched, REAL *out,
             int *turns, const int *status, u32 key0, u32 key1) {
    int j = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * SAMPLES;
    if (*status || j >= n_slice) return;
    int event = j - first_slice + (j < first_slice ? n_slice : 0), read = n_batch;
    REAL sign = (REAL)chopper[j], after = sign;
    if (event < n_event) {
        u64 n = number + event;
        bool flips = j < first_slice ? regular_1 : regular_0;
        if (prob > 0.0f) flips |= rk_uniform(rk_word(make_uint2(key0, key1), OP_CHOPPER, n & 4095u, n >> 12, 0u)) < prob;
        read = offset + event * period;
        after = flips ? -sign : sign;
        if (first == 0) turns[event] = (sign < 0.0f) | (switched && switched[j] ? 2 : 0) | (flips ? 4 : 0);
    }
    int last = min(first + SAMPLES, n_batch);
#pragma unroll
    for (int s = first; s < last; ++s) out[(u64)s * n_slice + j] = v[(u64)s * n_slice + j] * (s <= read ? sign : after);
}

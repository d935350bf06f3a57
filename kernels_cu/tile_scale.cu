// Noise management: the scale of every sample and its converted inputs for the first round.
//
//   x (n_batch, n)   float32, the inputs (errors, for a backward product)
//   work             see rk_lines.cuh. alpha: row 0 the scale; row 1 that of the worst case (with WORST), else
//       unset; a scale of 0 or below means: not scaled, or an output of zero where io[14] is set. need, n_failed: 0.
//       With CONVERT the converted inputs.
//   average (1)      float32, running mean of max |x|, negative before the first sample (AVERAGE)
//   status (1): a non-finite input stores `call` there, and the kernels after this one do nothing
//
// MODE 0: 1 (NONE); 1: max |x|; 2: max x; 3: `threshold`, or 1 without one; 4: AVERAGE; 5: the larger of
// max |x| and s = min(max |x| / step * max_bm_res, max(sum of positives, -sum of negatives) * 0.6 / bound).
// Modes 1, 2, 5 never pass a positive `threshold`. WORST adds the scale of mode 5 in row 1.
//
// AGAIN 1: instead, of each sample that met a bound in round 0, number k of `failed`: need, the round that it should end
// with; tried, which peak the rounds before are to be tried with; its inputs converted for that round, in row k.
// AGAIN 2: instead, of each sample that waits for round n_peak, its inputs converted for that round.
//
// Grid: one block a sample; with AVERAGE one block that takes the samples in order. Maxima have no order;
// the two sums are chains in ascending order by one thread. Draws of CONVERT: as tile_forward, round 0.
//
// Macros: MODE, WORST, CONVERT, AGAIN, OP (tag of the draws), INPUT_DRAWS (0: inputs need none), VEC (elements read at a time; 4 needs n % 4 == 0),
//         THREADS.
// mirror: rpukit/analog/_mirror/forward.py::tile_scale
// op: rpukit.analog.product.ops.tile_scale
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: MODE=2 CONVERT=1
// check: MODE=4
// check: MODE=1 WORST=1 CONVERT=1 VEC=4
// check: THREADS=32
// check: AGAIN=1
// check: AGAIN=2
// source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017).
#include "rk_early.cuh"
#include "rk_forecast.cuh"
#include "rk_scale.cuh"

#ifndef MODE
#define MODE 1
#endif
#ifndef WORST
#define WORST 0
#endif
#ifndef CONVERT
#define CONVERT 0
#endif
#ifndef AGAIN
#define AGAIN 0
#endif
#ifndef OP
#define OP 1
#endif
#ifndef INPUT_DRAWS
#define INPUT_DRAWS 1
#endif
#ifndef VEC
#define VEC 1
#endif
#ifndef THREADS
#define THREADS 256
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tile_scale(int n_batch, int n, int head, int n_round, int n_peak, float threshold, float step, float max_bm_res, float bound, int call, u64 first_sample,
           const float *io, const float *x, float *work, float *average, int *status, u32 key0, u32 key1) {
#if !AGAIN
    __shared__ Extent extents[THREADS / 32];
    __shared__ float found;
#endif
    Work w = parts(work, n_batch, head);
    const Converter converter = input_converter(io);
    int t = threadIdx.x;
    rk_wait_for_earlier();
    auto convert = [&](int s, int k, int round, float alpha) {
        float factor = input_factor(alpha, reduction(round, io), io);
        const float *from = x + (u64)s * n;
        float *to = w.body + (u64)k * n;
#pragma unroll 4
        for (int i = t; i < n; i += THREADS)
            to[i] = make_input<INPUT_DRAWS>(from[i], factor, converter, OP, i, first_sample + s, round, make_uint2(key0, key1));
    };
#if AGAIN == 2
    for (int s = blockIdx.x; s < n_batch; s += gridDim.x)
        if (w.need[s] >= BY_ROUND + n_peak) convert(s, s, n_peak, scale_of(w.alpha, n_batch, s, n_peak, io));
#elif AGAIN
    __shared__ int chosen;
    const int n_failed = (int)*w.n_failed;
    for (int k = blockIdx.x; k < n_failed; k += gridDim.x) {
        const int s = (int)w.failed[k];
        __syncthreads();
        if (t < 32) {
            int2 found = forecast(w, n_batch, n_peak, n_round, s, io);
            if (t == 0) chosen = w.need[s] = found.x, w.tried[k] = (u32)found.y;
        }
        __syncthreads();
        convert(s, k, chosen, scale_of(w.alpha, n_batch, s, chosen, io));
    }
#else
    float mean = MODE == 4 ? *average : 0.0f;  // thread 0 keeps it
    for (int s = blockIdx.x; s < n_batch; s += gridDim.x) {
        const float *row = x + (u64)s * n;
        Extent here[1] = {{0u, 0u}}, &e = here[0];
        widen_rows<VEC, 4, 1>(here, row, 1, n, t, THREADS, MODE == 2);
        widen_warp(e, MODE == 2);
        __syncthreads();
        if (t % 32 == 0) extents[t / 32] = e;
        __syncthreads();
        if (t == 0) {
            for (int warp = 1; warp < THREADS / 32; ++warp) {
                e.largest = max(e.largest, extents[warp].largest);
                e.top = max(e.top, extents[warp].top);
            }
            if (e.largest > LARGEST_FINITE) atomicCAS(status, 0, call);
            float largest = __uint_as_float(e.largest), limited = at_most(largest, threshold), a = plain_scale(MODE, e, threshold);
            if (MODE == 4) a = mean = mean < 0.0f ? largest : __fmaf_rn(0.001f, largest, mean * 0.999f);
            if (MODE == 5) a = np_sum(n, row, limited, step, max_bm_res, bound);
            w.alpha[s] = a;
            if (WORST) w.alpha[n_batch + s] = np_sum(n, row, limited, step, max_bm_res, bound);
            w.need[s] = 0;
            if (s == 0) *w.n_failed = 0;
            found = a;
        }
        if (CONVERT) {
            __syncthreads();
            convert(s, s, 0, found);
        }
    }
    // One block with MODE 4: thread 0 has stored to status before it looks at it.
    if (MODE == 4 && t == 0 && *(volatile int *)status == 0) *average = mean;
#endif
}

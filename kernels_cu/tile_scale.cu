// Noise management: the scale of every sample, found before its product is made.
//
//   x (n_batch, n)   float32, the inputs (errors, for a backward product)
//   alpha (2, n_batch) float32: row 0 the scale; row 1 that of the worst case (with WORST), else unset.
//       A scale of 0 or below means: not scaled, or an output of zero where `zero_output` is set.
//   need (n_batch)   int32, set to 0: the round of bound management that a sample waits for
//   average (1)      float32, running mean of max |x|, negative before the first sample (AVERAGE)
//   status (1): a non-finite input stores `call` there, and the kernels after this one do nothing
//
// MODE 0: 1 (NONE); 1: max |x|; 2: max x; 3: `threshold`, or 1 without one; 4: AVERAGE; 5: the larger of
// max |x| and s = min(max |x| / step * max_bm_res, max(sum of positives, -sum of negatives) * 0.6 / bound).
// Modes 1, 2, 5 never pass a positive `threshold`. WORST adds the scale of mode 5 in row 1.
//
// Grid: one block a sample; with AVERAGE one block that takes the samples in order. Maxima have no order;
// the two sums are chains in ascending order by one thread.
//
// Macros: MODE, WORST.
// mirror: rpukit/analog/_mirror/forward.py::tile_scale
// op: rpukit.analog.forward.tile_scale
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: MODE=2
// check: MODE=4
// check: MODE=1 WORST=1
// source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017).
#include "rk_math.cuh"

#ifndef MODE
#define MODE 1
#endif
#ifndef WORST
#define WORST 0
#endif
#define THREADS 256

__device__ __forceinline__ float block_max(float v, float *shared) {
    for (int lane = 16; lane; lane >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane));
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    v = shared[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) v = fmaxf(v, shared[warp]);
    return v;
}

__device__ __forceinline__ float np_sum(int n, const float *x, float a, float step, float max_bm_res, float bound) {
    float positive = 0.0f, negative = 0.0f;
    for (int i = 0; i < n; ++i) {
        if (x[i] > 0.0f) positive += x[i];
        if (x[i] < 0.0f) negative += x[i];
    }
    float s = fmaxf(positive, -negative) * 0.6f / bound;
    if (step > 0.0f) s = fminf(a / step * max_bm_res, s);
    return fmaxf(a, s);
}

extern "C" __global__ void __launch_bounds__(THREADS)
tile_scale(int n_batch, int n, float threshold, float step, float max_bm_res, float bound, int call, const float *x,
           float *alpha, int *need, float *average, int *status) {
    __shared__ float shared[THREADS / 32];
    float mean = MODE == 4 ? *average : 0.0f;  // thread 0 keeps it
    for (int s = blockIdx.x; s < n_batch; s += gridDim.x) {
        const float *row = x + (u64)s * n;
        float largest = 0.0f, top = -RK_INF;
        bool finite = true;
        for (int i = threadIdx.x; i < n; i += THREADS) {
            float v = row[i];
            finite = finite && fabsf(v) <= 3.402823466e+38f;
            largest = fmaxf(largest, fabsf(v));
            top = fmaxf(top, v);
        }
        if (!finite) atomicCAS(status, 0, call);
        largest = block_max(largest, shared);
        top = block_max(top, shared);
        if (threadIdx.x == 0) {
            float limited = threshold > 0.0f ? fminf(largest, threshold) : largest, a = 1.0f;
            if (MODE == 1) a = limited;
            if (MODE == 2) a = threshold > 0.0f ? fminf(top, threshold) : top;
            if (MODE == 3) a = threshold > 0.0f ? threshold : 1.0f;
            if (MODE == 4) a = mean = mean < 0.0f ? largest : __fmaf_rn(0.001f, largest, mean * 0.999f);
            if (MODE == 5) a = np_sum(n, row, limited, step, max_bm_res, bound);
            alpha[s] = a;
            if (WORST) alpha[n_batch + s] = np_sum(n, row, limited, step, max_bm_res, bound);
            need[s] = 0;
        }
    }
    // One block with MODE 4: the barriers above order its own stores to status before this look at it.
    if (MODE == 4 && threadIdx.x == 0 && *(volatile int *)status == 0) *average = mean;
}

// Count samples and accumulate the flows of their roots; the sample clock advances.
//
//   weight = weight + sum over (sample, root), in this order, of the weights of those that are possible, in double
//
//   out, weights (n_sample, n_root) REAL: log-likelihoods, and flows of the roots; clock (1) i64; weight (1) double
//
// One block: all threads read, the first one adds.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::count_samples
// op: rpukit.circuits.ops.em.count_samples
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"

#define PART 1024  // flows that are read at a time

extern "C" __global__ void __launch_bounds__(256)
count_samples(int n_sample, int n_root, const REAL *out, const REAL *weights, i64 *clock, double *weight) {
    __shared__ double part[PART];
    wait_for_earlier();
    u64 n = (u64)n_sample * n_root;
    double sum = weight[0];
    for (u64 first = 0; first < n; first += PART) {
        for (int k = threadIdx.x; k < PART; k += 256) {
            u64 at = first + k;
            part[k] = at < n && out[at] > NOTHING ? (double)weights[at] : 0.0;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int end = n - first < PART ? (int)(n - first) : PART;
#pragma unroll 8
            for (int k = 0; k < end; ++k) sum = sum + part[k];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        weight[0] = sum;
        clock[0] = clock[0] + n_sample;
    }
}

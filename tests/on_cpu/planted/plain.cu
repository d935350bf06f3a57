// A kernel for the tests of the machinery: y[i] = a x[i] + b, in REAL, and what else it is given.
//
// mirror: none
// arch: sm_80 sm_120
// check: REAL=double
// check: REAL=double OFFSET=2
#include "plain.cuh"
#include "plain.cuh"

#ifndef REAL  // float or double
#define REAL float
#endif
#ifndef OFFSET
#define OFFSET 0
#endif
#if OFFSET > 1
#ifndef TWICE
#define TWICE 1
#endif
#else
#ifndef TWICE
#define TWICE 0
#endif
#endif

extern "C" __global__ void __launch_bounds__((64 * 4) / 2)
plain(/* size, */ int n, u32 first, u64 big, long long wide, REAL a, const REAL *__restrict__ x, REAL *y,
      const int *skip,  // may be null
      unsigned char small) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || (skip && *skip)) return;
    y[i] = a * x[i] + (REAL)(OFFSET + (int)first + (int)(big >> 40) + (int)wide + small + TWICE);
}

extern "C" __global__ void shared_size(int n, int *y) {
    extern __shared__ int words[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) words[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) *y = words[n - 1];
}

// Largest |x| and |d| of each sample.
//
//   x (n_batch, n_in), d (n_batch, n_out)   REAL
//   maxima (2, n_batch)                     REAL, of x, then of d
//   status (1): a value that is not finite stores `call` there, and the kernels after this one do nothing
//
// Grid: (n_batch), 256 threads. A maximum has no order.
// Macro: REAL.
// mirror: rpukit/analog/_mirror/transfer.py::sample_maxima
// op: rpukit.analog.transfer.ops.sample_maxima
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Rasch et al., Nature Communications 15:7133 (2024), auto scaling of the fast learning rate.
#include "rk_real.cuh"

#define THREADS 256

// The largest |v| of a line of n, over the lanes of a warp; *finite is cleared where one is not.
__device__ __forceinline__ REAL largest_of(const REAL *v, int n, bool *finite) {
    REAL largest = (REAL)0;
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += THREADS) {
        REAL a = rk_abs(v[i]);
        *finite = *finite && a <= rk_largest(a);
        largest = rk_max(largest, a);
    }
    for (int lane = 16; lane; lane >>= 1) largest = rk_max(largest, __shfl_xor_sync(0xffffffffu, largest, lane));
    return largest;
}

extern "C" __global__ void __launch_bounds__(THREADS)
sample_maxima(int n_batch, int n_in, int n_out, int call, const REAL *x, const REAL *d, REAL *maxima, int *status) {
    __shared__ REAL found[2][THREADS / 32];
    int s = blockIdx.x, warp = threadIdx.x >> 5;
    bool finite = true;
    REAL x_max = largest_of(x + (u64)s * n_in, n_in, &finite), d_max = largest_of(d + (u64)s * n_out, n_out, &finite);
    if (!finite) atomicCAS(status, 0, call);
    if ((threadIdx.x & 31) == 0) {
        found[0][warp] = x_max;
        found[1][warp] = d_max;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        REAL largest = (REAL)0;
        for (int w = 0; w < THREADS / 32; ++w) largest = rk_max(largest, found[threadIdx.x][w]);
        maxima[(u64)threadIdx.x * n_batch + s] = largest;
    }
}

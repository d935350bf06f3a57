// Planted: with BARRIER 0 a warp may write its next number before the other has read the last one.
#ifndef BARRIER
#define BARRIER 0
#endif

extern "C" __global__ void turns(int *y) {
    __shared__ int s[2];
    int warp = threadIdx.x / 32, sum = 0;
    for (int k = 0; k < 4; ++k) {
        if (threadIdx.x % 32 == 0) s[warp] = 10 * k + warp;
        __syncthreads();
        sum += (k + 1) * s[warp ^ 1];
        if (BARRIER) __syncthreads();
    }
    y[threadIdx.x] = sum;
}

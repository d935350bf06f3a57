// Planted: with BARRIER 0 nothing waits between the writes to shared memory and the reads; with 2 warps
// wait for their own lanes alone.
#ifndef BARRIER
#define BARRIER 0
#endif

extern "C" __global__ void race(int n, float *y) {
    __shared__ float s[256];
    extern __shared__ float d[];
    int i = threadIdx.x;
    s[i] = y[i];
    d[i] = y[i];
    if (BARRIER == 1) __syncthreads();
    if (BARRIER == 2) __syncwarp();
    y[i] = s[(i + 1) % n] + d[(i + n - 1) % n];
}

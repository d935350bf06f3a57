// Planted: a block reads shared memory that it never wrote, and finds what an earlier one left.
extern "C" __global__ void leftover(float *y) {
    __shared__ float s;
    if (blockIdx.x == 0) s = 1.0f;
    y[blockIdx.x] = s;
}

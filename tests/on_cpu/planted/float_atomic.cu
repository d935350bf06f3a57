// Planted: a sum of floats by atomics, whose bits depend on the order of the threads.
extern "C" __global__ void float_atomic(const float *x, float *sum) { atomicAdd(sum, x[threadIdx.x]); }

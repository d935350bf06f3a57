// Planted: a thread that needs more stack than it has, by calling itself, or by large local arrays.
#ifndef LOCAL
#define LOCAL 512
#endif

__device__ __noinline__ int descend(int depth, int *y) {
    volatile int local[LOCAL];
    for (int i = 0; i < LOCAL; ++i) local[i] = i + depth;
    if (depth) y[0] += descend(depth - 1, y);
    return local[y[0] & 1];
}

extern "C" __global__ void deep_stack(int depth, int *y) { y[0] = descend(depth, y); }

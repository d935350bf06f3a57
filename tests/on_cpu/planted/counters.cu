// Atomics on integers, whose results have no order: a histogram and its like.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

extern "C" __global__ void counters(int n, const u32 *u, u32 *sum, int *extremes, u64 *wide, u32 *masks) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&sum[u[i] % 4], 1u);
    atomicMin(&extremes[0], (int)u[i]);
    atomicMax(&extremes[1], (int)u[i]);
    atomicAdd(wide, (u64)u[i] << 20);
    atomicOr(&masks[0], u[i]);
    atomicAnd(&masks[1], u[i]);
    atomicXor(&masks[2], u[i]);
    u32 seen = masks[3];
    for (u32 old; (old = atomicCAS(&masks[3], seen, seen + 1)) != seen;) seen = old;
}

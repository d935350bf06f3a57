// Planted: barriers and collectives that not everybody reaches.
//
// MODE 0: none of that; 1: half of the threads take a barrier; 2: a thread leaves before one;
// 3: half of a warp shuffles with all of it; 4: lanes name different partners.
#ifndef MODE
#define MODE 0
#endif

extern "C" __global__ void barriers(int *y) {
    int i = threadIdx.x, v = i;
#if MODE == 1
    if (i < 16) __syncthreads();
#elif MODE == 2
    if (i == 5) return;
#elif MODE == 3
    if (i % 32 < 16) v = __shfl_xor_sync(0xffffffffu, v, 1);
    else __syncthreads();
#elif MODE == 4
    v = __shfl_xor_sync(i % 32 < 16 ? 0xffffffffu : 0xffff0000u, v, 1);
#endif
    __syncthreads();
    y[i] = v;
}

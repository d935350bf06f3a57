// Planted, by mode: 1: a store past the end of an array; 2: past dynamic shared memory; 3: past a shared
// array; 4: an integer that overflows; 5: a float that no int holds; 6: a load past a shared array by its
// address; 7: a store past it; 0: none of that.
__device__ __noinline__ int load(const int *at, int i) { return at[i]; }
__device__ __noinline__ void store(int *at, int i) { at[i] = i; }

extern "C" __global__ void bounds(int n, int mode, float big, int *y) {
    __shared__ int s[8], t[8];
    extern __shared__ int d[];
    int i = threadIdx.x;
    s[i] = t[i] = d[i] = i;
    __syncthreads();
    if (mode == 1) y[n + i] = i;
    if (mode == 2) d[n + i] = i;
    if (mode == 3) s[n + i] = i;
    if (mode == 4) y[i] = 0x7fffffff + s[i] + 1;
    if (mode == 5) y[i] = (int)(big * 1e10f);
    if (mode == 6) y[i] = load(s, n) + load(t, n);
    if (mode == 7) store(s, n), store(t, n);
    if (mode == 0) y[i] = s[i] + d[i];
}

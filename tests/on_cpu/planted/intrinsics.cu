// What the runner's built-in functions give, for a test that knows the right answers.
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void intrinsics(const float *x, const u32 *u, float *f, int *n, u64 *w, double *d) {
    int i = threadIdx.x, lane = i % 32;
    f[i] = __fmaf_rn(x[i], x[i], -1.0f);
    f[64 + i] = fminf(x[i], x[(i + 1) % 64]);
    f[128 + i] = fmaxf(x[i], x[(i + 1) % 64]);
    f[192 + i] = __shfl_down_sync(0xffffffffu, x[i], 3);
    f[256 + i] = __shfl_up_sync(0xffffffffu, x[i], 3, 8);
    f[320 + i] = __shfl_sync(0xffffffffu, x[i], 5, 16);
    f[384 + i] = __shfl_xor_sync(0xffffffffu, x[i], 9);
    n[i] = __popc(u[i]);
    n[64 + i] = __ffs(u[i]);
    n[128 + i] = __clz(u[i]);
    n[192 + i] = (int)__brev(u[i]);
    n[256 + i] = __float2int_rn(x[i]);
    n[320 + i] = (int)__ballot_sync(0xffffffffu, u[i] & 1);
    n[384 + i] = __any_sync(0xffffffffu, lane == 7 && i < 32);
    n[448 + i] = __all_sync(0xffffffffu, u[i] != 0);
    n[512 + i] = (int)__reduce_add_sync(0xffffffffu, u[i]);
    n[576 + i] = __reduce_max_sync(0xffffffffu, (int)u[i]);
    n[640 + i] = __syncthreads_count(u[i] & 1);
    n[704 + i] = (int)__umulhi(u[i], 0x9e3779b9u);
    w[i] = __umul64hi((u64)u[i] << 32 | u[i], 0x9e3779b97f4a7c15ull);
    w[64 + i] = (u64)__popcll((u64)u[i] << 32 | 1);
    d[i] = __fma_rn((double)x[i], (double)x[i], -1.0);
    d[64 + i] = __dsqrt_rn(fabs((double)x[i]));
    d[128 + i] = __longlong_as_double(__double_as_longlong((double)x[i]) ^ (1ll << 63));
}

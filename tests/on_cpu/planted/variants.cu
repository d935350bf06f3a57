// A kernel with variants, for the tests of the tuner: y[s] = sum over j ascending of a x[s, j].
//
// VARIANT 0: plain; 1: the same bits, two columns a step; 2: drops all samples but the first;
// 3: sums from the other end, so other bits.
#ifndef VARIANT
#define VARIANT 0
#endif

extern "C" __global__ void variants(int n_batch, int n, float a, const float *x, float *y) {
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= n_batch || (VARIANT == 2 && s > 0)) return;
    float sum = 0.0f;
#if VARIANT == 1
    int j = 0;
    for (; j + 2 <= n; j += 2) sum = __fmaf_rn(a, x[s * n + j + 1], __fmaf_rn(a, x[s * n + j], sum));
    if (j < n) sum = __fmaf_rn(a, x[s * n + j], sum);
#elif VARIANT == 3
    for (int j = n - 1; j >= 0; --j) sum = __fmaf_rn(a, x[s * n + j], sum);
#else
    for (int j = 0; j < n; ++j) sum = __fmaf_rn(a, x[s * n + j], sum);
#endif
    y[s] = sum;
}

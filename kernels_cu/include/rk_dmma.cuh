// Tensor cores of float64: a chain of fused multiply-adds in ascending order, as verified on an H200 with random data.
// RK_ON_CPU: that chain.
#pragma once
#include "rk_types.cuh"

// A warp adds a 16 x 8 times 8 x 8 product to its accumulators. Lane l has of a row l / 4 (odd i: 8 further)
// and depth 4 (i / 2) + l % 4, of b depth 4 i + l % 4 and column l / 4, of c rows as a and columns
// 2 (l % 4) + i % 2 (i from 2 on: the row 8 further).
__device__ __forceinline__ void rk_dmma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if defined(RK_ON_CPU)
    int lane = threadIdx.x % 32;
    for (int k = 0; k < 8; ++k) {
        double a0 = __shfl_sync(~0u, a[k / 4 * 2], lane / 4 * 4 + k % 4), a1 = __shfl_sync(~0u, a[k / 4 * 2 + 1], lane / 4 * 4 + k % 4);
        double b0 = __shfl_sync(~0u, b[k / 4], lane % 4 * 8 + k % 4), b1 = __shfl_sync(~0u, b[k / 4], lane % 4 * 8 + 4 + k % 4);
        c[0] = __fma_rn(a0, b0, c[0]), c[1] = __fma_rn(a0, b1, c[1]);
        c[2] = __fma_rn(a1, b0, c[2]), c[3] = __fma_rn(a1, b1, c[3]);
    }
#elif __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                         : "+d"(c[2 * h]), "+d"(c[2 * h + 1]) : "d"(a[2 * k + h]), "d"(b[k]));
#endif
}
// The same with 16 depths: a has depth 4 (i / 2) + l % 4, b depth 4 i + l % 4.
__device__ __forceinline__ void rk_dmma(double (&c)[4], const double (&a)[8], const double (&b)[4]) {
#if !defined(RK_ON_CPU) && __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%0,%1,%2,%3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#else
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        double a8[4] = {a[4 * h], a[4 * h + 1], a[4 * h + 2], a[4 * h + 3]}, b8[2] = {b[2 * h], b[2 * h + 1]};
        rk_dmma(c, a8, b8);
    }
#endif
}

// Runs CUDA kernels on one CPU core, to test what they do: a kernel's own text, compiled by g++ with this
// header in front. Threads and blocks run in an order that the caller picks, and shared memory begins
// poisoned in every block, so a race shows as a wrong result; asynchronous copies poison where they go to
// and land late; a barrier that not all threads reach is reported; floats have no atomics. Blocks run one after another and memory is sequentially consistent, so
// what only a GPU can show (missing fences, say) stays for compute-sanitizer.
//
//   fibers.h      the threads of a block, barriers, one launch; fibers.cpp: what is linked to every kernel
//   intrinsics.h  built-in functions
//   here          the words of the language: qualifiers, vector types, threadIdx and its like
#pragma once
#include <limits>

#include "fibers.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("oncpu_shared")))
// `extern __shared__ T name[];` becomes this (runner.py).
#define ON_CPU_DYNAMIC_SHARED(T, name) T *name = reinterpret_cast<T *>(oncpu::current->shared)

#define threadIdx (oncpu::current->running->thread)
#define blockIdx (oncpu::current->at)
#define blockDim (oncpu::current->block)
#define gridDim (oncpu::current->grid)
#define warpSize 32

#define ON_CPU_VECTOR2(T, name)                   \
    struct alignas(2 * sizeof(T)) name { T x, y; }; \
    static inline name make_##name(T x, T y) { return {x, y}; }
#define ON_CPU_VECTOR4(T, name)                           \
    struct alignas(sizeof(T) < 8 ? 4 * sizeof(T) : 16) name { T x, y, z, w; }; \
    static inline name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }
ON_CPU_VECTOR2(int, int2)
ON_CPU_VECTOR2(unsigned, uint2)
ON_CPU_VECTOR2(float, float2)
ON_CPU_VECTOR2(double, double2)
ON_CPU_VECTOR4(int, int4)
ON_CPU_VECTOR4(unsigned, uint4)
ON_CPU_VECTOR4(float, float4)
ON_CPU_VECTOR4(double, double4)

#include "intrinsics.h"

// The exported launcher of a kernel; its argument types come from the kernel itself.
#define ON_CPU_EXPORT(kernel)                                                                         \
    extern "C" __attribute__((visibility("default"))) int kernel##__launch(                           \
        const unsigned *grid, const unsigned *block, unsigned shared, unsigned order, void **args) { \
        return oncpu::launch({grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, order, \
                             [&] { oncpu::call(kernel, args); });                                    \
    }

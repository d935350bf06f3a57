// CUDA's built-in functions that the kernels of this project use, with the same bits. To be extended
// when a kernel needs more; what has no counterpart here (wgmma, TMA, textures, clusters, grid-wide
// synchronisation) needs a plain body behind `#ifdef RK_ON_CPU` in the kernel.
#pragma once
#include <cmath>

#include "fibers.h"

namespace oncpu {

template <class T> static inline uint64_t bits(T v) {
    static_assert(sizeof(T) <= 8, "a lane can hand over eight bytes");
    uint64_t u = 0;
    std::memcpy(&u, &v, sizeof v);
    return u;
}
template <class T, class U> static inline T as(U u) {
    T v;
    std::memcpy(&v, &u, sizeof v);
    return v;
}

// A collective of a warp: hand over a value, wait for the lanes of the mask, read. The second wait
// keeps a fast lane from handing over its next value too early.
template <class R> static inline auto collect(unsigned mask, uint64_t value, R read) {
    Fiber *fiber = current->running;
    fiber->slot = value;
    fiber->mask = mask;
    give_way(AT_WARP);
    unsigned lane = fiber->linear % WARP;
    auto result = read(fiber - lane, lane);
    give_way(AT_WARP);
    return result;
}

// Fold the values of the lanes of a mask, by an operation that has no order.
template <class T, class F> static inline T fold(unsigned mask, T v, F f) {
    static_assert(std::is_integral<T>::value, "CUDA reduces integers only");
    return collect(mask, bits(v), [&](Fiber *warp, unsigned lane) {
        T sum = as<T>(warp[lane].slot);
        for (unsigned other = 0; other < WARP; ++other)
            if (other != lane && mask >> other & 1) sum = f(sum, as<T>(warp[other].slot));
        return sum;
    });
}

// As the conversion instructions: nearest even, saturated, NaN becomes 0.
template <class I, class F> static inline I to_integer(F rounded) {
    constexpr F low = F(std::numeric_limits<I>::min()), end = F(std::numeric_limits<I>::max() / 2 + 1) * 2;
    if (rounded != rounded) return 0;
    if (rounded < low) return std::numeric_limits<I>::min();
    return rounded >= end ? std::numeric_limits<I>::max() : I(rounded);
}

// PTX min and max: a NaN gives way to a number, and -0 is less than +0.
template <class F> static inline F min_of(F a, F b) {
    if (a != a || b != b) return a != a ? b : a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class F> static inline F max_of(F a, F b) {
    if (a != a || b != b) return a != a ? b : a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}

}  // namespace oncpu

// --- barriers and fences ------------------------------------------------------------------------------

static inline void __syncthreads() { oncpu::give_way(oncpu::AT_BARRIER); }
static inline void __syncwarp(unsigned mask = ~0u) {
    oncpu::current->running->mask = mask;
    oncpu::give_way(oncpu::AT_WARP);
}
static inline int __syncthreads_count(int predicate) {
    oncpu::current->running->slot = predicate != 0;
    __syncthreads();
    int count = 0;
    for (auto &fiber : oncpu::current->fibers) count += int(fiber.slot);
    __syncthreads();
    return count;
}
static inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
static inline int __syncthreads_and(int predicate) { return __syncthreads_count(!predicate) == 0; }
static inline void __threadfence() {}  // memory is sequentially consistent here
static inline void __threadfence_block() {}

// --- shuffles, votes, reductions of a warp ------------------------------------------------------------

template <class T> static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    return oncpu::collect(mask, oncpu::bits(v), [&](oncpu::Fiber *warp, unsigned lane) {
        return oncpu::as<T>(warp[(lane & ~(width - 1)) + (source & (width - 1))].slot);
    });
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int flip, int width = 32) {
    return oncpu::collect(mask, oncpu::bits(v), [&](oncpu::Fiber *warp, unsigned lane) {
        unsigned source = lane ^ flip;
        return source / width == lane / width ? oncpu::as<T>(warp[source].slot) : v;
    });
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    return oncpu::collect(mask, oncpu::bits(v), [&](oncpu::Fiber *warp, unsigned lane) {
        return lane % width + delta < unsigned(width) ? oncpu::as<T>(warp[lane + delta].slot) : v;
    });
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    return oncpu::collect(mask, oncpu::bits(v), [&](oncpu::Fiber *warp, unsigned lane) {
        return lane % width >= delta ? oncpu::as<T>(warp[lane - delta].slot) : v;
    });
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned lane = oncpu::current->running->linear % oncpu::WARP;
    return oncpu::fold(mask, unsigned(predicate != 0) << lane, [](unsigned a, unsigned b) { return a | b; });
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
template <class T> static inline T __reduce_add_sync(unsigned mask, T v) {
    return oncpu::fold(mask, v, [](T a, T b) { return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b)); });
}
template <class T> static inline T __reduce_min_sync(unsigned mask, T v) {
    return oncpu::fold(mask, v, [](T a, T b) { return std::min(a, b); });
}
template <class T> static inline T __reduce_max_sync(unsigned mask, T v) {
    return oncpu::fold(mask, v, [](T a, T b) { return std::max(a, b); });
}
template <class T> static inline T __reduce_or_sync(unsigned mask, T v) {
    return oncpu::fold(mask, v, [](T a, T b) { return T(a | b); });
}
template <class T> static inline T __reduce_and_sync(unsigned mask, T v) {
    return oncpu::fold(mask, v, [](T a, T b) { return T(a & b); });
}

// --- atomics on integers ------------------------------------------------------------------------------

#define ON_CPU_ATOMIC(name, result)                                                                      \
    template <class T> static inline T name(T *p, std::common_type_t<T> v) {                             \
        static_assert(std::is_integral<T>::value,                                                        \
                      "no atomics on floats: their bits would depend on the order of the threads");      \
        T old = *p;                                                                                      \
        *p = (result);                                                                                   \
        return old;                                                                                      \
    }
ON_CPU_ATOMIC(atomicAdd, T(std::make_unsigned_t<T>(old) + std::make_unsigned_t<T>(v)))
ON_CPU_ATOMIC(atomicSub, T(std::make_unsigned_t<T>(old) - std::make_unsigned_t<T>(v)))
ON_CPU_ATOMIC(atomicMax, std::max(old, v))
ON_CPU_ATOMIC(atomicMin, std::min(old, v))
ON_CPU_ATOMIC(atomicOr, T(old | v))
ON_CPU_ATOMIC(atomicAnd, T(old & v))
ON_CPU_ATOMIC(atomicXor, T(old ^ v))
ON_CPU_ATOMIC(atomicExch, v)
template <class T> static inline T atomicCAS(T *p, std::common_type_t<T> expected, std::common_type_t<T> v) {
    static_assert(std::is_integral<T>::value, "no atomics on floats");
    T old = *p;
    if (old == expected) *p = v;
    return old;
}

// --- arithmetic ---------------------------------------------------------------------------------------

static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
static inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __drcp_rn(double a) { return 1.0 / a; }
static inline double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
#define fminf(a, b) oncpu::min_of<float>(a, b)
#define fmaxf(a, b) oncpu::max_of<float>(a, b)
#define fmin(a, b) oncpu::min_of<double>(a, b)
#define fmax(a, b) oncpu::max_of<double>(a, b)
template <class T> static inline T min(T a, T b) {
    if constexpr (std::is_floating_point<T>::value) return oncpu::min_of(a, b);
    return b < a ? b : a;
}
template <class T> static inline T max(T a, T b) {
    if constexpr (std::is_floating_point<T>::value) return oncpu::max_of(a, b);
    return a < b ? b : a;
}

static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
static inline int __mulhi(int a, int b) { return int(int64_t(a) * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline int __clz(int v) { return v ? __builtin_clz(unsigned(v)) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
static inline unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; ++i) r |= (v >> i & 1) << (31 - i);
    return r;
}

// --- bits and conversions -----------------------------------------------------------------------------

static inline unsigned __float_as_uint(float v) { return oncpu::as<unsigned>(v); }
static inline float __uint_as_float(unsigned v) { return oncpu::as<float>(v); }
static inline int __float_as_int(float v) { return oncpu::as<int>(v); }
static inline float __int_as_float(int v) { return oncpu::as<float>(v); }
static inline long long __double_as_longlong(double v) { return oncpu::as<long long>(v); }
static inline double __longlong_as_double(long long v) { return oncpu::as<double>(v); }
static inline int __float2int_rn(float v) { return oncpu::to_integer<int>(std::nearbyint(v)); }
static inline int __float2int_rz(float v) { return oncpu::to_integer<int>(std::trunc(v)); }
static inline unsigned __float2uint_rn(float v) { return oncpu::to_integer<unsigned>(std::nearbyint(v)); }
static inline unsigned __float2uint_rz(float v) { return oncpu::to_integer<unsigned>(std::trunc(v)); }
static inline long long __float2ll_rn(float v) { return oncpu::to_integer<long long>(std::nearbyint(v)); }
static inline int __double2int_rn(double v) { return oncpu::to_integer<int>(std::nearbyint(v)); }
static inline long long __double2ll_rn(double v) { return oncpu::to_integer<long long>(std::nearbyint(v)); }
static inline float __int2float_rn(int v) { return float(v); }
static inline float __uint2float_rn(unsigned v) { return float(v); }
static inline float __ll2float_rn(long long v) { return float(v); }
static inline float __ull2float_rn(unsigned long long v) { return float(v); }
static inline double __ll2double_rn(long long v) { return double(v); }
static inline float __double2float_rn(double v) { return float(v); }
static inline float __double2float_ru(double v) {
    float near = float(v);
    return double(near) < v ? std::nextafter(near, HUGE_VALF) : near;
}
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }

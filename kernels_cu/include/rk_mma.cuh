// Tensor cores by mma.sync, and the 8x8 matrices that a warp moves to and from shared memory.
// RK_ON_CPU: a model of the arithmetic, to the bit (docs/semantics/gemm.md), and plain moves.
#pragma once
#include "rk_shared.cuh"

// Type of the factors: bfloat16, or float16 with HALF.
#ifndef HALF
#define HALF 0
#endif
#if HALF
#define RK_FACTOR "f16"
#else
#define RK_FACTOR "bf16"
#endif

#ifdef RK_ON_CPU
// (significand, exponent) of a 16-bit float: value = significand 2^(exponent - RK_BITS).
#define RK_BITS (HALF ? 10 : 7)
static inline int rk_exponent(u16 v) { return v >> RK_BITS & (HALF ? 31 : 255); }
static inline bool rk_not_finite(u16 v) { return rk_exponent(v) == (HALF ? 31 : 255); }
static inline i64 rk_significand(u16 v) {
    i64 m = (v & ((1 << RK_BITS) - 1)) | (rk_exponent(v) ? 1 << RK_BITS : 0);
    return v >> 15 ? -m : m;
}
static inline i64 rk_cut(i64 v, int left) {  // v 2^left, towards zero
    if (!v) return 0;  // whose exponent may be anything
    u64 m = u64(v < 0 ? -v : v);
    m = left >= 0 ? m << left : left > -64 ? m >> -left : 0;
    return v < 0 ? -i64(m) : i64(m);
}

// One step: c + sum of 16 products, cut at 25 bits below the largest exponent, towards zero.
static inline float rk_tensor_step(float c, const u16 *a, const u16 *b) {
    constexpr int bias = HALF ? 15 : 127, fraction = 25;
    u32 word = __float_as_uint(c), sign = word >> 31;
    bool endless = (word & 0x7fffffff) == 0x7f800000, nan = c != c;
    bool plus = endless && !sign, minus = endless && sign;
    i64 m[17];
    int e[17], top = -133;
    for (int k = 0; k < 16; ++k) {
        if (rk_not_finite(a[k]) || rk_not_finite(b[k])) {
            u16 most = HALF ? 0x7c00 : 0x7f80, x = a[k] & 0x7fff, y = b[k] & 0x7fff;
            nan |= x > most || y > most || !x || !y;
            ((a[k] ^ b[k]) >> 15 ? minus : plus) = true;
        }
        m[k] = rk_significand(a[k]) * rk_significand(b[k]);
        e[k] = max(rk_exponent(a[k]), 1) + max(rk_exponent(b[k]), 1) - 2 * bias;
        if (m[k]) top = max(top, e[k]);
    }
    if (nan || (plus && minus)) return __uint_as_float(0x7fffffff);
    if (plus || minus) return __uint_as_float(plus ? 0x7f800000 : 0xff800000);
    int field = word >> 23 & 255;
    m[16] = (word & 0x7fffff) | (field ? 0x800000 : 0);
    if (sign) m[16] = -m[16];
    e[16] = max(field, 1) - 127;
    if (m[16]) top = max(top, e[16]);
    i64 sum = rk_cut(m[16], fraction - 23 + e[16] - top);
    for (int k = 0; k < 16; ++k) sum += rk_cut(m[k], fraction - 2 * RK_BITS + e[k] - top);
    u64 size = u64(sum < 0 ? -sum : sum);
    if (!size) return 0.0f;
    int last = 63 - __clzll((long long)size) + top - fraction;  // exponent of the sum
    if (last > 127) return __uint_as_float(sum < 0 ? 0xff800000 : 0x7f800000);
    int unit = max(last, -126) - 23;
    u32 kept = u32(rk_cut(i64(size), top - fraction - unit));
    u32 bits = kept >= 0x800000 ? (u32(unit + 150) << 23) + (kept - 0x800000) : kept;
    return __uint_as_float(bits | (sum < 0 && kept ? 0x80000000 : 0));
}
#endif

// float32 to the bits of a factor's type: to nearest, ties to even.
__device__ __forceinline__ u16 rk_round16(float x) {
    u32 u = __float_as_uint(x), sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return 0x7fff;
    if (!HALF) return (u16)(sign | ((u + 0x7fff + (u >> 16 & 1)) >> 16));
    if (u < 0x38800000) return (u16)(sign | (u32)__float2int_rn(__uint_as_float(u) * 16777216.0f));
    return (u16)(sign | min((u + 0xfff + (u >> 13 & 1)) / 8192 - (112 << 10), 0x7c00u));
}
__device__ __forceinline__ u32 rk_pack16(float low, float high) {
#ifdef RK_ON_CPU
    return rk_round16(low) | (u32)rk_round16(high) << 16;
#else
    u32 r;
    asm("cvt.rn." RK_FACTOR "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#endif
}

// Four 8x8 matrices of 16-bit values from a warp's registers to shared memory. Lane 8 i + r gives the
// address of row r of matrix i; a lane holds two neighbouring values of row lane / 4 (turned: of a column).
template <bool TURNED> __device__ __forceinline__ void rk_store_matrices(u32 address, u32 v0, u32 v1, u32 v2, u32 v3) {
#ifdef RK_ON_CPU
    u32 v[4] = {v0, v1, v2, v3}, lane = threadIdx.x % 32;
    for (u32 i = 0; i < 4; ++i)
        for (u32 h = 0; h < 2; ++h) {
            u32 row = TURNED ? lane % 4 * 2 + h : lane / 4, column = TURNED ? lane / 4 : lane % 4 * 2 + h;
            u32 at = __shfl_sync(~0u, address, 8 * i + row) + 2 * column;
            *(u16 *)rk_shared(at) = u16(v[i] >> 16 * h);
        }
#else
    if (TURNED)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v0), "r"(v1), "r"(v2), "r"(v3) : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v0), "r"(v1), "r"(v2), "r"(v3) : "memory");
#endif
}

// 16 bytes of shared memory.
__device__ __forceinline__ float2 rk_read_pair(u32 address) {
#ifdef RK_ON_CPU
    return *(float2 *)rk_shared(address);
#else
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
    return v;
#endif
}
__device__ __forceinline__ void rk_write_pair(u32 address, float x, float y) {
#ifdef RK_ON_CPU
    *(float2 *)rk_shared(address) = make_float2(x, y);
#else
    asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(address), "f"(x), "f"(y) : "memory");
#endif
}
__device__ __forceinline__ void rk_write_line(u32 address, uint4 v) {
#ifdef RK_ON_CPU
    *(uint4 *)rk_shared(address) = v;
#else
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#endif
}
__device__ __forceinline__ uint4 rk_read_line(u32 address) {
#ifdef RK_ON_CPU
    return *(uint4 *)rk_shared(address);
#else
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
    return v;
#endif
}

// The other way: register i of a lane gets two values of row lane / 4 of matrix i (turned: of a column).
template <bool TURNED> __device__ __forceinline__ void rk_load_matrices(u32 (&v)[4], u32 address) {
#ifdef RK_ON_CPU
    u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 4; ++i) {
        v[i] = 0;
        for (u32 h = 0; h < 2; ++h) {
            u32 row = TURNED ? lane % 4 * 2 + h : lane / 4, column = TURNED ? lane / 4 : lane % 4 * 2 + h;
            u32 at = __shfl_sync(~0u, address, 8 * i + row) + 2 * column;
            v[i] |= (u32) * (u16 *)rk_shared(at) << 16 * h;
        }
    }
#else
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(address) : "memory");
#endif
}

// A warp adds a 16 x 16 times 16 x 8 product: d[2 h + l] belongs to row 8 h + lane / 4, column 2 (lane % 4) + l.
// a: rows 0-7 and 8-15 of depths 0-7, then of depths 8-15; b: depths 0-7, 8-15, as rk_load_matrices gives them.
__device__ __forceinline__ void rk_mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#ifdef RK_ON_CPU
    u32 lane = threadIdx.x % 32;
    u16 rows[2][16], columns[2][16];
    for (u32 q = 0; q < 4; ++q)
        for (u32 i = 0; i < 4; ++i) {
            u32 of_row = __shfl_sync(~0u, a[i], lane / 4 * 4 + q);
            u32 of_column = __shfl_sync(~0u, i % 2 ? b1 : b0, (lane % 4 * 2 + i / 2) * 4 + q);
            for (u32 h = 0; h < 2; ++h) {
                rows[i % 2][i / 2 * 8 + 2 * q + h] = u16(of_row >> 16 * h);
                columns[i / 2][i % 2 * 8 + 2 * q + h] = u16(of_column >> 16 * h);
            }
        }
    for (u32 x = 0; x < 4; ++x) d[x] = rk_tensor_step(d[x], rows[x / 2], columns[x % 2]);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." RK_FACTOR "." RK_FACTOR ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

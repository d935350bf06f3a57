// 16-bit elements that begin anywhere in memory: the aligned lines that hold them, and their shift to one line.
#pragma once
#include "rk_types.cuh"
typedef unsigned short u16;

#ifndef RK_ON_CPU
#define RK_READ(LOAD)                                                                                                                     \
    asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %9, 0; setp.gt.s32 q, %10, 16; mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; "         \
                 "mov.u32 %3, 0; mov.u32 %4, 0; mov.u32 %5, 0; mov.u32 %6, 0; mov.u32 %7, 0; "                                            \
                 "@p " LOAD ".v4.u32 {%0,%1,%2,%3}, [%8]; @q " LOAD ".v4.u32 {%4,%5,%6,%7}, [%8 + 16]; }"                                 \
                 : "=&r"(low.x), "=&r"(low.y), "=&r"(low.z), "=&r"(low.w), "=&r"(high.x), "=&r"(high.y), "=&r"(high.z), "=&r"(high.w)     \
                 : "l"(from), "r"(n_byte), "r"(first + n_byte)                                                                            \
                 : "memory")
#endif

// Two neighbouring lines of 16 bytes, in which 8 elements begin anywhere. `once`: what is read should not stay in L2.
struct Loose {
    uint4 low, high;
    // Of the lines those with one of the n_byte bytes from `x` on: what else is in these is in the same pages of memory.
    __device__ __forceinline__ void read(const u16 *x, int n_byte, bool once = false) {
        int first = (u32)(u64)x & 15;
#ifdef RK_ON_CPU
        memset(this, 0xff, sizeof *this);  // not a number, in place of what is not the array's
        if (n_byte > 0) memcpy((char *)this + first, x, n_byte);
        else low = high = make_uint4(0, 0, 0, 0);
#else
        const char *from = (const char *)x - first;
        if (once) RK_READ("ld.global.cs");
        else RK_READ("ld.global");
#endif
    }
    // The elements that begin where `x` does in its line, zeros after the first n_byte bytes.
    __device__ __forceinline__ uint4 tight(const u16 *x, int n_byte) const {
        u32 v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}, made[4], at = (u32)(u64)x;
#pragma unroll
        for (int i = 0; i < 6; ++i) v[i] = at & 8 ? v[i + 2] : v[i];
#pragma unroll
        for (int i = 0; i < 5; ++i) v[i] = at & 4 ? v[i + 1] : v[i];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            made[i] = (u32)(((u64)v[i + 1] << 32 | v[i]) >> (at & 2) * 8);
            if (n_byte < 4 * i + 4) made[i] = n_byte > 4 * i ? made[i] & 0xffff : 0;
        }
        return make_uint4(made[0], made[1], made[2], made[3]);
    }
};

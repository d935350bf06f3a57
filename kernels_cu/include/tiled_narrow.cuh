// Numbers of 8 and 16 bits that tiles store: conversion from and to float, to nearest, ties to even.
// Mirrors: rpukit/tiled/_mirror/narrow.py.
#pragma once
#include "rk_types.cuh"

typedef signed char i8;
typedef unsigned short u16;

#ifndef NARROW
#define NARROW i8
#endif

// Integer from -127 to 127 of x in units of the scale; 0 of NaN.
__device__ __forceinline__ i64 tn_integer(float x, float scale) {
    const float u = x / scale;
    if (u >= 127.0f) return 127;
    if (u <= -127.0f) return -127;
    return u == u ? (i64)((u + 12582912.0f) - 12582912.0f) : 0;
}

// Bits of float16; finite numbers beyond 65504 become that.
__device__ __forceinline__ i64 tn_half(float x) {
    u32 u = __float_as_uint(x);
    const u32 sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return 0x7e00;
    if (u >= 0x477ff000) return sign | (u == 0x7f800000 ? 0x7c00 : 0x7bff);
    if (u < 0x38800000) return sign | (__float_as_uint(__uint_as_float(u) * 16777216.0f + 8388608.0f) - 0x4b000000);
    return sign | (((u + 0xfff + (u >> 13 & 1)) >> 13) - (112 << 10));
}

__device__ __forceinline__ float tn_float(i64 half) {
    const u32 sign = (u32)(half & 0x8000) << 16, e = (u32)(half >> 10 & 31), m = (u32)(half & 1023);
    if (e == 0) return __uint_as_float(sign | __float_as_uint((float)m * 5.9604644775390625e-08f));
    return __uint_as_float(sign | (e == 31 ? 255 : e + 112) << 23 | m << 13);
}

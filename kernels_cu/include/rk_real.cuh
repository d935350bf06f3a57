// The type that a tile computes with, float or double, and functions that both have under one name, with
// those of rk_math.cuh and rk_math64.cuh. Random draws are float in both (rk_philox.cuh), and are cast
// exactly. Mirrors: the same module a second time, see rpukit/_exact/twins.py.
#pragma once
#include "rk_math64.cuh"

#ifndef REAL
#define REAL float
#endif

__device__ __forceinline__ float rk_largest(float) { return 3.402823466e+38f; }  // of the type of its argument
__device__ __forceinline__ double rk_largest(double) { return 1.7976931348623157e+308; }
// Hold at the largest number of the type: what lasts is finite, also where cells have no bounds.
template <class T>
__device__ __forceinline__ T rk_hold(T v) {
    T top = rk_largest(v);
    return v < -top ? -top : v > top ? top : v;
}
__device__ __forceinline__ float rk_abs(float x) { return fabsf(x); }
__device__ __forceinline__ double rk_abs(double x) { return fabs(x); }
__device__ __forceinline__ float rk_max(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double rk_max(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ float rk_min(float a, float b) { return fminf(a, b); }
__device__ __forceinline__ double rk_min(double a, double b) { return fmin(a, b); }
__device__ __forceinline__ float rk_trunc(float x) { return truncf(x); }
__device__ __forceinline__ double rk_trunc(double x) { return trunc(x); }
__device__ __forceinline__ float rk_ceil(float x) { return ceilf(x); }
__device__ __forceinline__ double rk_ceil(double x) { return ceil(x); }
__device__ __forceinline__ float rk_rint(float x) { return rintf(x); }
__device__ __forceinline__ double rk_rint(double x) { return rint(x); }

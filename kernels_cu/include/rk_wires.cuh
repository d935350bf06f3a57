// Effect of non-ideal wires and amplifiers on the sums of a line: tile_nonideal.cu has the formulas.
// Mirror: rpukit/analog/_mirror/nonideal.py. Uses the macros IR_DROP, OFFSET, SATURATES, W_NOISE.
#pragma once
#include "rk_periphery.cuh"

#define N_SUM 5  // y, A, D, R, V

template <class T>
struct Sums {
    T part[N_SUM], total[N_SUM];
};

template <class T>
__device__ __forceinline__ void add(Sums<T> &s, T w, T v, T g) {
    s.part[0] = rk_fma(w, v, s.part[0]);
    if (IR_DROP) s.part[1] = rk_fma(rk_abs(w), rk_abs(v), s.part[1]);
    if (IR_DROP) s.part[2] = rk_fma(w, v * g, s.part[2]);
    if (W_NOISE == 1) s.part[3] = rk_fma(v, v, s.part[3]);
    if (W_NOISE == 2) s.part[3] = rk_fma(rk_abs(w), v * v, s.part[3]);
    if (OFFSET) s.part[4] = s.part[4] + v;
}

// What wires and amplifiers make of the sums of one pass.
template <class T>
__device__ __forceinline__ T through_wires(const T *sum, T n, T o, const T *more, T w_noise, u32 word) {
    T y = sum[0];
    if (IR_DROP) {
        T a = sum[1] * n / more[1], c = a * rk_fma(a, rk_fma((T)0.05, a, (T)-0.2), (T)0.5);
        y = rk_fma(-(more[0] * c), sum[2], y);
    }
    if (OFFSET) {
        T r = more[2], z = -more[3] * sum[4];
        if (more[3] == (T)0) y = ((T)1 - o) * y / rk_fma(r, rk_abs(y), (T)1);
        else if (!(r > (T)0)) y = ((T)1 - o) * y - (T)2 * o * z;
        else y = ((T)1 - o) * (y + z) / rk_fma(r, rk_abs(y + z), (T)1) - ((T)1 + o) * z / rk_fma(r, rk_abs(z), (T)1);
    }
    if (W_NOISE && w_noise > (T)0) y = rk_fma(w_noise * rk_sqrt(sum[3]), (T)rk_normal(word), y);
    return y;
}

// Saturation, noise, conversion and bound test of one output; *met is set where the bound counts and is passed.
template <class T>
__device__ __forceinline__ T out_stage(T y, T s, T deviation, const T *io, const T *more, uint4 b, bool *met) {
    if (SATURATES) y = more[4] * y / ((T)1 + rk_abs(s * y));
    if (y < (T)0) y *= io[7];
    if (deviation > (T)0) y = rk_fma(deviation, (T)rk_normal(b.y), y);
    y = convert(y, io[5], io[11] != (T)0, b.z);
    T bound = io[4];
    if (bound > (T)0 && (y > bound || (y < -bound && io[12] != (T)0))) *met = true;
    return clip(y, bound);
}

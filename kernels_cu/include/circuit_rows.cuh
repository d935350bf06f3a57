// Common definitions of the circuit kernels. Values, flows and lifts are (n_sample, n_row); a value is a
// natural logarithm, -inf is "impossible". Values and lifts are double for every REAL, so that their rounding does not
// grow with a long chain; what is computed from their differences is REAL.
#pragma once
#include "rk_early.cuh"
#include "rk_real.cuh"

#define NOTHING ((REAL)-RK_INF)
#define IMPOSSIBLE (-(double)RK_INF)  // as a value
#define SEGMENT 64  // children of a sum that are one chain
#define BLOCK 256  // samples whose statistics are one chain
#define CHAIN 4096  // most steps (sample, use) of a chain of float

// Kinds of leaves, as rpukit/circuits/graph/leaves.py numbers them; those before GAUSSIAN are tables.
#define CATEGORICAL 0
#define BERNOULLI 1
#define BINOMIAL 2
#define DISCRETE_LOGISTIC 3
#define GAUSSIAN 5
#define POISSON 6

#ifndef WIDTH  // rows of an element that are read where they lie, -1 for none; 0: elements have an array
#define WIDTH 0
#endif

__device__ __forceinline__ float rk_tiny(float) { return 1.17549435e-38f; }
__device__ __forceinline__ double rk_tiny(double) { return 2.2250738585072014e-308; }

// Samples of a block: blockIdx.y, and so on in steps of the grid.
#define EACH_SAMPLE(b, n) for (int b = blockIdx.y; b < n; b += gridDim.y)

// Samples that a thread reads together, from b0 on: FEW of them, or as many as are left.
#ifndef FEW
#define FEW 1
#endif
#define FEW_SAMPLES(b0, n) for (int b0 = blockIdx.y * FEW; b0 < n; b0 += gridDim.y * FEW)

// A reference for values: the smallest REAL that is not below v.
__device__ __forceinline__ float round_up(double v, float) { return __double2float_ru(v); }
__device__ __forceinline__ double round_up(double v, double) { return v; }
__device__ __forceinline__ REAL reference_of(double v) { return round_up(v, (REAL)0); }

// n log p, where nothing times the logarithm of 0 is 0.
__device__ __forceinline__ double times_log(double n, double p) { return n == 0.0 ? 0.0 : n * rk_log(p); }

// rk_exp of x <= 88, with fewer steps where the result is a normal number.
__device__ __forceinline__ float exp_below(float x) { return x >= -87.0f ? rk_exp_within(x) : rk_exp(x); }
__device__ __forceinline__ double exp_below(double x) { return rk_exp(x); }

// rk_exp of each x <= 0, side by side; what has to be rounded again is rare.
template <int N> __device__ __forceinline__ void exps_below(float (&x)[N]) {
    bool far = false;
    float made[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        far |= !(x[i] >= -87.0f) && x[i] != -RK_INF;
        made[i] = x[i] != -RK_INF ? rk_exp_within(x[i]) : 0.0f;
    }
    if (far) {
#pragma unroll
        for (int i = 0; i < N; ++i) made[i] = x[i] >= -87.0f ? made[i] : rk_exp(x[i]);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = made[i];
}
template <int N> __device__ __forceinline__ void exps_below(double (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = rk_exp(x[i]);
}

// The largest of a warp's numbers, NaN left out; of floats as integers in the same order.
__device__ __forceinline__ float largest_of_warp(float m) {
    int i = __float_as_int(m == m ? m : -RK_INF);
    i = __reduce_max_sync(~0u, i ^ (i >> 31 & 0x7fffffff));
    return __int_as_float(i ^ (i >> 31 & 0x7fffffff));
}
__device__ __forceinline__ double largest_of_warp(double m) {
#pragma unroll
    for (int x = 16; x; x /= 2) m = rk_max(m, __shfl_xor_sync(~0u, m, x));
    return m;
}

// log flow - value: what a sum passes on but for the child's value. Nothing branches, so that many are made side by side.
__device__ __forceinline__ float log_of_flow(float flow) {
    float r = rk_log_finite(flow);
    return flow < RK_INF ? r : flow;
}
__device__ __forceinline__ double log_of_flow(double flow) { return rk_log(flow); }
__device__ __forceinline__ double lift_of(double value, REAL flow) {
    double up = (double)log_of_flow(flow) - value;
    return (flow > (REAL)0) & (value > IMPOSSIBLE) ? up : IMPOSSIBLE;
}

// The value of an element from its rows.
__device__ __forceinline__ double product_of(const int *rows, const double *values) {
    double v = values[rows[0]];
#pragma unroll
    for (int k = 1; k < WIDTH; ++k) {
        double more = values[max(rows[k], 0)];  // without a branch, so that reads need not wait for each other
        v = rows[k] >= 0 ? v + more : v;
    }
    return v;
}

// Wait for the results of the launch before, then let the next begin likewise.
__device__ __forceinline__ void wait_for_earlier() {
    rk_wait_for_earlier();
    rk_let_later_begin();
}

// The step of a block of samples, whose first has number 0, before which a chain ends that step w is in.
__device__ __forceinline__ int end_of_chain(int w, int uses) {
    return sizeof(REAL) == 8 ? BLOCK * uses : min((w / CHAIN + 1) * CHAIN, BLOCK * uses);
}

// End a chain: it goes to the total.
__device__ __forceinline__ void settle(REAL &chain, double &total) {
    total = total + (double)chain;
    chain = (REAL)0;
}

// Have the THREADS of a block divide a line of n values by their sum, added ascending; without `open`, or without a
// sum, it stays. `whole` is shared.
template <int THREADS> __device__ __forceinline__ void divide_by_sum(REAL *line, int n, bool open, REAL &whole) {
    __syncthreads();
    if (threadIdx.x == 0) {
        REAL sum = (REAL)0;
        for (int x = 0; x < n; ++x) sum = sum + line[x];
        whole = sum;
    }
    __syncthreads();
    for (int x = threadIdx.x; open && whole > (REAL)0 && x < n; x += THREADS) line[x] = line[x] / whole;
}

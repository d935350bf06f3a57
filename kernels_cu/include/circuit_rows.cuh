// What the kernels of circuits have in common. Values, flows and lifts are (n_sample, n_row); a value is a
// natural logarithm, -inf is "impossible".
#pragma once
#include "rk_real.cuh"

#define NOTHING ((REAL)-RK_INF)
#define SEGMENT 64  // children of a sum that are one chain
#define BLOCK 256  // samples whose statistics are one chain

// Kinds of leaves, as rpukit/circuits/leaves.py numbers them; those before GAUSSIAN are tables.
#define CATEGORICAL 0
#define BERNOULLI 1
#define BINOMIAL 2
#define DISCRETE_LOGISTIC 3
#define GAUSSIAN 5
#define POISSON 6

__device__ __forceinline__ float rk_tiny(float) { return 1.17549435e-38f; }
__device__ __forceinline__ double rk_tiny(double) { return 2.2250738585072014e-308; }

// Samples of a block: blockIdx.y, and so on in steps of the grid.
#define EACH_SAMPLE(b, n) for (int b = blockIdx.y; b < n; b += gridDim.y)

// n log p, where nothing times the logarithm of 0 is 0.
__device__ __forceinline__ REAL times_log(REAL n, REAL p) { return n == (REAL)0 ? (REAL)0 : n * rk_log(p); }

// End a block of samples: its chain goes to the total.
__device__ __forceinline__ void settle(REAL &chain, double &total) {
    total = total + (double)chain;
    chain = (REAL)0;
}

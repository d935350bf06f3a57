// Normal leaves of N_COLUMN variables. Parameters of a node are its means and the rows of the lower Cholesky factor of its
// covariance. The factor with known variables first gives the density of what is known and the regression of the rest on it.
// Mirror: rpukit/circuits/_mirror/normal.py.
#pragma once
#include "circuit_rows.cuh"
#include "rk_math64.cuh"

#ifndef N_COLUMN
#define N_COLUMN 4
#endif
#define D N_COLUMN
#define TRIANGLE (D * (D + 1) / 2)
#define HALF_LOG_2PI 0.9189385332046727

// Place of row r, column k in the rows of a lower triangle.
__device__ __forceinline__ int packed(int r, int k) { return r * (r + 1) / 2 + k; }

// Known variables of x (or of its distance from the mean), then the missing ones; how many are known.
__device__ __forceinline__ int ordered(const double *x, int *order) {
    int n = 0, n_known = 0;
    for (int i = 0; i < D; ++i)
        if (x[i] == x[i]) order[n++] = i;
    n_known = n;
    for (int i = 0; i < D; ++i)
        if (x[i] != x[i]) order[n++] = i;
    return n_known;
}

// Rows 0 to n - 1 of the factor of the covariance with variables in another order, by a block of D threads or more, one a
// row. `own` is the factor in the usual order. All threads are at a barrier afterwards.
__device__ __forceinline__ void factor_rows(const double *own, const int *order, int n, double *f) {
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        int r = k + threadIdx.x;
        double s = 0.0;
        if (r < n) {
            int i = order[r], j = order[k];
#pragma unroll 1
            for (int m = 0; m <= min(i, j); ++m) s = s + own[packed(i, m)] * own[packed(j, m)];
#pragma unroll 1
            for (int m = 0; m < k; ++m) s = s - f[packed(r, m)] * f[packed(k, m)];
            if (r == k) f[packed(k, k)] = rk_sqrt(s);
        }
        __syncthreads();
        if (r < n && r > k) f[packed(r, k)] = s / f[packed(k, k)];
        __syncthreads();
    }
}

// Value of a leaf: y is the whitened distance of n_known variables, volume the logarithm of the determinant of n rows.
__device__ __forceinline__ double normal_value(const double *y, int n_known, double volume, int n) {
    double square = 0.0;
    for (int r = 0; r < n_known; ++r) square = square + y[r] * y[r];
    double v = ((0.0 - 0.5 * square) - volume) - (double)n * HALF_LOG_2PI;
    return v == v ? v : IMPOSSIBLE;
}

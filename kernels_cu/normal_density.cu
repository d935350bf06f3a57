// Values of normal leaves of several variables.
//
//   value = -|y|^2 / 2 - sum log F_rr - n / 2 log 2 pi,  F y = x - mean in the n known variables, F F^T their covariance
//   with best the density of all variables, where missing ones have their most probable values
//
//   rows (n_leaf) int, variable (n_leaf, N_COLUMN) int, place (n_leaf) i64, of a node's parameters (REAL): see normal_rows.cuh
//   numbers (n_sample, n_variable) REAL, NaN missing; values (n_sample, n_row) double
//
// Grid: (leaves, samples / 64), one thread a sample; samples of which a part is missing by the whole block, one after another.
// Macros: REAL, N_COLUMN.
// mirror: rpukit/circuits/_mirror/normal.py::normal_density
// op: rpukit.circuits.ops.normal.normal_density
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: N_COLUMN=64
// source: docs/semantics/circuits.md, section 1.
#include "normal_rows.cuh"

#define THREADS 64

extern "C" __global__ void __launch_bounds__(THREADS)
normal_density(int n_sample, int n_variable, int n_row, int best, const int *rows, const int *variable, const i64 *place,
               const REAL *numbers, const REAL *parameters, double *values) {
    __shared__ double own[TRIANGLE], f[TRIANGLE], mean[D], log_of[D], x[D], shared_y[D];
    __shared__ int column[D], order[D], n_shared;
    __shared__ bool waits[THREADS];
    int i = blockIdx.x, t = threadIdx.x, row = rows[i];
    const REAL *p = parameters + place[i];
    for (int k = t; k < TRIANGLE; k += THREADS) own[k] = (double)p[D + k];
    if (t < D) {
        mean[t] = (double)p[t], column[t] = variable[i * D + t];
        log_of[t] = rk_log((double)p[D + packed(t, t)]);
    }
    __syncthreads();
    double whole = 0.0;
    for (int r = 0; r < D; ++r) whole = whole + log_of[r];
    for (int b0 = blockIdx.y * THREADS; b0 < n_sample; b0 += gridDim.y * THREADS) {
        int b = b0 + t, n_known = 0;
        double y[D];
        for (int r = 0; r < D && b < n_sample; ++r) {
            y[r] = (double)numbers[(u64)b * n_variable + column[r]];
            n_known += y[r] == y[r];
        }
        bool partly = n_known > 0 && n_known < D;
        waits[t] = partly;
        if (b < n_sample && !partly) {
            for (int r = 0; r < n_known; ++r) {
                double s = y[r] - mean[r];
                for (int k = 0; k < r; ++k) s = s - own[packed(r, k)] * y[k];
                y[r] = s / own[packed(r, r)];
            }
            bool all = best || n_known == D;
            values[(u64)b * n_row + row] = normal_value(y, n_known, all ? whole : 0.0, all ? D : 0);
        }
        bool any = __syncthreads_or(partly);
        for (int s = 0; any && s < THREADS; ++s) {
            if (!waits[s]) continue;
            if (t < D) x[t] = (double)numbers[(u64)(b0 + s) * n_variable + column[t]] - mean[t];
            __syncthreads();
            if (t == 0) n_shared = ordered(x, order);
            __syncthreads();
            factor_rows(own, order, n_shared, f);
            if (t == 0) {
                double volume = 0.0;
                for (int r = 0; r < n_shared; ++r) {
                    double e = x[order[r]];
                    for (int k = 0; k < r; ++k) e = e - f[packed(r, k)] * shared_y[k];
                    shared_y[r] = e / f[packed(r, r)];
                    volume = best ? volume : volume + rk_log(f[packed(r, r)]);
                }
                values[(u64)(b0 + s) * n_row + row] =
                    normal_value(shared_y, n_shared, best ? whole : volume, best ? D : n_shared);
            }
            __syncthreads();
        }
        __syncthreads();
    }
}

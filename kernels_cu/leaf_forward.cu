// Values of leaves: those of finite support from their table, the others from their parameters.
//
//   Gaussian  -z^2 / 2 - (log(2 pi) / 2 + log std);  Poisson  (x log rate - rate) - lgamma(x + 1)
//
//   kinds, variable, sizes (n_leaf) int; place (n_leaf) i64, of a node's table of so many values, or of its parameters
//   codes (n_sample, n_variable) int, below 0 missing; numbers (n_sample, n_variable) REAL, NaN missing
//   values (n_sample, n_row) REAL: leaves are the first columns; a missing one is log 1, one past a table
//   impossible
//
// Grid: (leaves / 256, samples / FEW or less), one thread a leaf.
// Macros: REAL, FEW.
// mirror: rpukit/circuits/_mirror/learning.py::leaf_forward
// op: rpukit.circuits.ops.leaf_forward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: FEW=4
// source: docs/semantics/circuits.md, section 1.
#include "circuit_rows.cuh"
#include "rk_special64.cuh"

#define HALF_LOG_2PI ((REAL)0.9189385332046727)

__device__ __forceinline__ REAL of_number(int kind, REAL x, const REAL *own) {
    if (x != x) return (REAL)0;
    if (kind == GAUSSIAN) {
        REAL z = (x - own[0]) / own[1];
        return (REAL)-0.5 * (z * z) - (HALF_LOG_2PI + rk_log(own[1]));
    }
    return (times_log(x, own[0]) - own[0]) - rk_lgamma(x + (REAL)1);
}

extern "C" __global__ void __launch_bounds__(256)
leaf_forward(int n_sample, int n_leaf, int n_variable, int n_row, const int *kinds, const int *variable, const i64 *place,
             const int *sizes, const int *codes, const REAL *numbers, const REAL *table, const REAL *parameters, REAL *values) {
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= n_leaf) return;
    int kind = kinds[r], at = variable[r], size = sizes[r];
    i64 p = place[r];
    wait_for_earlier();
    FEW_SAMPLES(b0, n_sample) {
        int line[FEW], x[FEW];
        REAL v[FEW];
#pragma unroll
        for (int f = 0; f < FEW; ++f) line[f] = min(b0 + f, n_sample - 1);
        if (kind < GAUSSIAN) {
#pragma unroll
            for (int f = 0; f < FEW; ++f) x[f] = codes[(u64)line[f] * n_variable + at];
#pragma unroll
            for (int f = 0; f < FEW; ++f) v[f] = x[f] < 0 ? (REAL)0 : x[f] < size ? table[p + x[f]] : NOTHING;
        } else {
#pragma unroll
            for (int f = 0; f < FEW; ++f) v[f] = of_number(kind, numbers[(u64)line[f] * n_variable + at], parameters + p);
        }
#pragma unroll
        for (int f = 0; f < FEW; ++f)
            if (b0 + f < n_sample) values[(u64)line[f] * n_row + r] = v[f];
    }
}

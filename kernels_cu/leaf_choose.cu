// Sample unknown variables from their chosen leaf, or take its mode.
//
//   table: the first largest value, or the first whose running probability passes u times the whole; Gaussian: mean +
//   std xi; Poisson: floor of the rate, or the first count whose cumulative probability, in double, passes u
//
//   kinds, variable, sizes (n_leaf) int: sizes of tables; place i64; table, parameters REAL
//   codes int, numbers REAL (n_sample, n_variable), changed in place; chosen (n_sample, n_row) u8
//
// Grid: (leaves / 256, samples), one thread a leaf: one leaf of a variable is chosen. Draw: op, index = row, sample, word 0.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/queries.py::leaf_choose
// op: rpukit.circuits.ops.layers.leaf_choose
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 4.
#include "circuit_rows.cuh"
#include "rk_philox.cuh"

__device__ __forceinline__ int value_of(int best, REAL u, const REAL *table, int n) {
    int most = 0;
    REAL whole = (REAL)0, so_far = (REAL)0;
    for (int x = 0; x < n; ++x) {
        if (table[x] > table[most]) most = x;
        whole = whole + rk_exp(table[x]);
    }
    if (best) return most;
    REAL bar = u * whole;
    for (int x = 0; x < n; ++x) {
        so_far = so_far + rk_exp(table[x]);
        if (so_far > bar) return x;
    }
    return most;
}

__device__ __forceinline__ REAL count_of(double u, double rate) {
    double log_rate = rk_log(rate), log_p = -rate, so_far = 0.0;
    for (i64 k = 0;;) {
        so_far = so_far + rk_exp(log_p);
        if (so_far > u || ((double)k > rate && log_p < -100.0)) return (REAL)k;
        ++k;
        log_p = (log_p + log_rate) - rk_log((double)k);
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
leaf_choose(int n_sample, int n_leaf, int n_variable, int n_row, int best, u64 first_sample, u32 op, const int *kinds,
            const int *variable, const i64 *place, const int *sizes, const REAL *table, const REAL *parameters, int *codes,
            REAL *numbers, const unsigned char *chosen, u32 key0, u32 key1) {
    int r = blockIdx.x * 256 + threadIdx.x;
    if (r >= n_leaf) return;
    int kind = kinds[r], v = variable[r];
    i64 p = place[r];
    EACH_SAMPLE(b, n_sample) {
        if (!chosen[(u64)b * n_row + r]) continue;
        u32 word = rk_block(make_uint2(key0, key1), op, (u64)r, first_sample + b, 0u).x;
        u64 at = (u64)b * n_variable + v;
        if (kind < GAUSSIAN) {
            if (codes[at] < 0) codes[at] = value_of(best, (REAL)rk_uniform(word), table + p, sizes[r]);
        } else if (numbers[at] != numbers[at]) {
            if (kind == GAUSSIAN)
                numbers[at] = rk_fma(parameters[p + 1], best ? (REAL)0 : (REAL)rk_normal(word), parameters[p]);
            else
                numbers[at] = best ? rk_trunc(parameters[p]) : count_of((double)rk_uniform(word), (double)parameters[p]);
        }
    }
}

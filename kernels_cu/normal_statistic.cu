// Accumulate the statistics of normal leaves of several variables.
//
//   of each node: flow, flow e, flow E[e e^T] (rows of the lower triangle), e = x - mean, and the flow of samples of which
//   nothing is known; a missing part of e is its expectation given the rest, and E[e e^T] has the covariance of that part
//
//   place, first_parameter (n_node) i64: where a node's statistics and parameters (normal_rows.cuh) begin
//   use_first (n_node + 1) i64, use_row int: rows that use a node; use_variable int, N_COLUMN variables of each
//   numbers (n_sample, n_variable), parameters, flows (n_sample, n_row), chains REAL, totals double
//   position (1) i64: samples before; chains end as those of leaf_flow
//
// Grid: nodes, a thread for each statistic, steps (sample, use) one after another, GROUP of them read together.
// Macros: REAL, N_COLUMN.
// mirror: rpukit/circuits/_mirror/normal.py::normal_statistic
// op: rpukit.circuits.ops.normal.normal_statistic
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: N_COLUMN=64
// source: docs/semantics/circuits.md, section 3.
#include "normal_rows.cuh"

#define THREADS 128
#define GROUP 16
#define N_STATISTIC (2 + D + TRIANGLE)
#define EACH ((N_STATISTIC + THREADS - 1) / THREADS)

// Expected product of the distances of variables i and j.
__device__ __forceinline__ double moment(const double *e, const int *rank, int n_known, const double *f, int i, int j) {
    double s = e[i] * e[j];
    if (n_known == D) return s;
    int low = min(rank[i], rank[j]);
    for (int k = n_known; k <= low; ++k) s = s + f[packed(rank[i], k)] * f[packed(rank[j], k)];
    return s;
}

extern "C" __global__ void __launch_bounds__(THREADS)
normal_statistic(int n_sample, int n_variable, int n_row, const i64 *position, const i64 *place, const i64 *first_parameter,
                 const i64 *use_first, const int *use_row, const int *use_variable, const REAL *numbers,
                 const REAL *parameters, const REAL *flows, REAL *chains, double *totals) {
    __shared__ double own[TRIANGLE], f[TRIANGLE], mean[D], y[D], e[GROUP][D];
    __shared__ REAL flow_of[GROUP];
    __shared__ int known[GROUP], order[D], rank[D];
    __shared__ unsigned char left[TRIANGLE], right[TRIANGLE];  // variables of a second moment
    int n = blockIdx.x, t = threadIdx.x;
    const REAL *p = parameters + first_parameter[n];
    i64 at = place[n], first = use_first[n];
    int uses = (int)(use_first[n + 1] - first), past = (int)(*position % BLOCK), step = past * uses;
    REAL sum[EACH];
#pragma unroll
    for (int k = 0; k < EACH; ++k) sum[k] = t + k * THREADS < N_STATISTIC ? chains[at + t + k * THREADS] : (REAL)0;
    for (int k = t; k < TRIANGLE; k += THREADS) {
        int i = 0;
        while (packed(i + 1, 0) <= k) ++i;
        left[k] = i, right[k] = k - packed(i, 0), own[k] = (double)p[D + k];
    }
    if (t < D) mean[t] = (double)p[t];
    auto end_chains = [&]() {
#pragma unroll
        for (int k = 0; k < EACH; ++k)
            if (t + k * THREADS < N_STATISTIC) settle(sum[k], totals[at + t + k * THREADS]);
    };
    int use = 0;  // of the next step, which is of sample b
    for (int b = 0; b < n_sample;) {
        int here = (int)min((i64)GROUP, (i64)(n_sample - b) * uses - use);
        __syncthreads();
        for (int k = t; k < here * D; k += THREADS) {
            int u = use + k / D, sample = b + u / uses, variable = use_variable[(first + u % uses) * D + k % D];
            e[k / D][k % D] = (double)numbers[(u64)sample * n_variable + variable] - mean[k % D];
        }
        if (t < here) flow_of[t] = flows[(u64)(b + (use + t) / uses) * n_row + use_row[first + (use + t) % uses]];
        __syncthreads();
        if (t < here) {
            int found = 0;
            for (int i = 0; i < D; ++i) found += e[t][i] == e[t][i];
            known[t] = found;
        }
        __syncthreads();
#pragma unroll 1
        for (int g = 0; g < here; ++g) {
            if (sizeof(REAL) == 4 && step && step % CHAIN == 0) end_chains();
            ++step;
            REAL flow = flow_of[g];
            int n_known = known[g];
            if (flow > (REAL)0) {
                if (n_known > 0 && n_known < D) {
                    __syncthreads();
                    if (t == 0) {
                        ordered(e[g], order);
                        for (int r = 0; r < D; ++r) rank[order[r]] = r;
                    }
                    __syncthreads();
                    factor_rows(own, order, D, f);
#pragma unroll 1
                    for (int r = 0; t == 0 && r < n_known; ++r) {
                        double s = e[g][order[r]];
                        for (int k = 0; k < r; ++k) s = s - f[packed(r, k)] * y[k];
                        y[r] = s / f[packed(r, r)];
                    }
                    __syncthreads();
                    if (t >= n_known && t < D) {
                        double s = 0.0;
#pragma unroll 1
                        for (int k = 0; k < n_known; ++k) s = s + f[packed(t, k)] * y[k];
                        e[g][order[t]] = s;
                    }
                    __syncthreads();
                }
#pragma unroll
                for (int k = 0; k < EACH; ++k) {
                    int s = t + k * THREADS;
                    if (s == N_STATISTIC - 1)
                        sum[k] = n_known ? sum[k] : sum[k] + flow;
                    else if (n_known && s == 0)
                        sum[k] = sum[k] + flow;
                    else if (n_known && s <= D)
                        sum[k] = rk_fma(flow, (REAL)e[g][s - 1], sum[k]);
                    else if (n_known && s < N_STATISTIC) {
                        double square = moment(e[g], rank, n_known, f, left[s - 1 - D], right[s - 1 - D]);
                        sum[k] = rk_fma(flow, (REAL)square, sum[k]);
                    }
                }
            }
            if (++use < uses) continue;
            use = 0, ++b;
            if (++past == BLOCK) end_chains(), past = 0, step = 0;
        }
    }
    if (sizeof(REAL) == 4 && step && step % CHAIN == 0) end_chains();
#pragma unroll
    for (int k = 0; k < EACH; ++k)
        if (t + k * THREADS < N_STATISTIC) chains[at + t + k * THREADS] = sum[k];
}

// EM step of the parameters of leaves, in place; a node without flow keeps its parameters.
//
//   CATEGORICAL: as sum_maximise; BERNOULLI, BINOMIAL: hits over trials; GAUSSIAN, DISCRETE_LOGISTIC: mean and mean of
//   squares are moved, std at least c2; POISSON: mean. What is missing counts as the leaf's own expectation.
//
//   parameters (n_node, n_parameter), chains (n_node, n_statistic + 1) REAL, totals likewise double
//   c0, c1: lower edge and width of the bins
//
// A warp a node, two a block: its lanes read, and all of them add the same terms, values ascending, in double. Of other
// leaves than CATEGORICAL the first lane does everything.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::leaf_maximise
// op: rpukit.circuits.ops.layers.leaf_maximise
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Peharz, Gens, Pernkopf, Domingos, IEEE TPAMI 39, 2030 (2017).
#include "circuit_rows.cuh"

struct Flow {
    const REAL *chains;
    const double *totals;
    __device__ __forceinline__ double operator[](int i) const { return totals[i] + (double)chains[i]; }
};

#define TOGETHER 4  // values that a lane loads at a time

// What values x + 32 j add to the whole; -1 for those that add nothing.
__device__ __forceinline__ void ask(double *term, int x, const REAL *p, int n, const Flow &flow, double missing, int keep_zeros) {
#pragma unroll
    for (int j = 0; j < TOGETHER; ++j) {
        int at = min(x + 32 * j, n - 1);
        double w = (double)p[at], more = flow[at] + missing * w;
        term[j] = x + 32 * j >= n || (keep_zeros && w < 1e-12) ? -1.0 : more;
    }
}

__device__ __forceinline__ void maximise_table(int lane, REAL *p, int n, const Flow &flow, double step, double pseudocount,
                                               int keep_zeros) {
    double part = pseudocount / (double)n, whole = 0.0, missing = flow[n], term[TOGETHER], later[TOGETHER];
    ask(later, lane, p, n, flow, missing, keep_zeros);
    for (int x0 = 0; x0 < n; x0 += 32 * TOGETHER) {
#pragma unroll
        for (int j = 0; j < TOGETHER; ++j) term[j] = later[j];
        ask(later, x0 + 32 * TOGETHER + lane, p, n, flow, missing, keep_zeros);
#pragma unroll
        for (int j = 0; j < TOGETHER; ++j) {
            if (x0 + 32 * j >= n) break;
#pragma unroll
            for (int k = 0; k < 32; ++k) {
                double one = __shfl_sync(~0u, term[j], k), more = whole + one;
                if (keep_zeros) more = more + part;
                whole = one < 0.0 ? whole : more;
            }
        }
    }
    if (!keep_zeros) whole = whole + pseudocount;
    if (!(whole > 0.0)) return;
#pragma unroll 4
    for (int x = lane; x < n; x += 32) {
        double w = (double)p[x], next = (flow[x] + missing * w + part) / whole;
        p[x] = keep_zeros && w < 1e-12 ? (REAL)0 : (REAL)((1.0 - step) * w + step * next);
    }
}

__device__ __forceinline__ void maximise_trials(REAL *p, int n_values, const Flow &flow, double step, double pseudocount) {
    double trials = (double)(n_values - 1), hits = 0.0, count = 0.0, q = (double)p[0];
    for (int x = 0; x < n_values; ++x) {
        hits = hits + flow[x] * (double)x;
        count = count + flow[x];
    }
    hits = hits + flow[n_values] * (trials * q);
    count = count + flow[n_values] + pseudocount;
    if (count > 0.0) p[0] = (REAL)((1.0 - step) * q + step * ((hits + 0.5 * pseudocount * trials) / (trials * count)));
}

__device__ __forceinline__ void maximise_moments(REAL *p, int kind, int n_values, double c0, double c1, double c2, const Flow &flow,
                                                 double step) {
    bool bins = kind == DISCRETE_LOGISTIC;
    double scale = bins ? 1.8137993642342178 : 1.0;  // pi / sqrt(3)
    double mean = (double)p[0], own = (double)p[1], std = own * scale, s0 = 0.0, s1 = 0.0, s2 = 0.0;
    for (int x = 0; bins && x < n_values; ++x) {
        double v = c0 + ((double)x + 0.5) * c1, f = flow[x];
        s0 = s0 + f * v;
        s1 = s1 + f * (v * v);
        s2 = s2 + f;
    }
    if (!bins) s0 = flow[0], s1 = flow[1], s2 = flow[2];
    double missing = flow[bins ? n_values : 3], spread = own * own * (bins ? 3.289868133696453 : 1.0);
    s0 = s0 + missing * mean;
    s1 = s1 + missing * (spread + mean * mean);
    s2 = s2 + missing;
    if (!(s2 > 0.0)) return;
    double t1 = (1.0 - step) * mean + step * (s0 / (s2 + 1e-10));
    double t2 = (1.0 - step) * (std * std + mean * mean) + step * (s1 / (s2 + 1e-10));
    double var = t2 - t1 * t1;
    p[0] = (REAL)t1;
    p[1] = (REAL)((var < c2 * c2 ? c2 : rk_sqrt(var)) / scale);
}

extern "C" __global__ void __launch_bounds__(64)
leaf_maximise(int n_node, int kind, int n_values, int n_parameter, int n_statistic, double c0, double c1, double c2, double step,
              double pseudocount, int keep_zeros, const REAL *chains, const double *totals, REAL *parameters) {
    int n = blockIdx.x * 2 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (n >= n_node) return;
    REAL *p = parameters + (u64)n * n_parameter;
    u64 at = (u64)n * (n_statistic + 1);
    Flow flow{chains + at, totals + at};
    if (kind == CATEGORICAL) {
        maximise_table(lane, p, n_parameter, flow, step, pseudocount, keep_zeros);
    } else if (lane > 0) {
        return;
    } else if (kind == BERNOULLI || kind == BINOMIAL) {
        maximise_trials(p, n_values, flow, step, pseudocount);
    } else if (kind == DISCRETE_LOGISTIC || kind == GAUSSIAN) {
        maximise_moments(p, kind, n_values, c0, c1, c2, flow, step);
    } else if (kind == POISSON) {
        double rate = (double)p[0], hits = flow[0] + flow[3] * rate, count = flow[2] + flow[3] + pseudocount;
        if (count > 0.0) p[0] = (REAL)((1.0 - step) * rate + step * ((hits + pseudocount * rate) / count));
    }
}

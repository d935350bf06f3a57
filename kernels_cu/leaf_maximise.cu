// EM step of the parameters of leaves, in place; a node without flow keeps its parameters.
//
//   CATEGORICAL: as sum_maximise; BERNOULLI, BINOMIAL: hits over trials; GAUSSIAN: mean and variance, by moments about
//   the old mean; DISCRETE_LOGISTIC: mean and mean of squares; std at least c2; POISSON: mean. What is missing counts as
//   the leaf's own expectation.
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

#define SCALE 1.8137993642342178  // standard deviation of a logistic distribution / scale: pi / sqrt(3)
#define SPREAD 3.289868133696453  // its square
// A variance is not resolved below this part of the mean square about the centre.
#define LOST (sizeof(REAL) == 4 ? 9.5367431640625e-07 : 1.7763568394002505e-15)
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

// Moments about the mean: flow d, flow d^2, flow, flow of missing values.
__device__ __forceinline__ void maximise_gaussian(REAL *p, double least, const Flow &flow, double step) {
    double std = (double)p[1], missing = flow[3], whole = flow[2] + missing;
    if (!(whole > 0.0)) return;
    double shift = step * (flow[0] / whole);
    double square = (1.0 - step) * (std * std) + step * ((flow[1] + missing * (std * std)) / whole);
    if (!(square < -(double)NOTHING)) return;
    double var = rk_max(square - shift * shift, square * LOST);
    p[0] = (REAL)((double)p[0] + shift);
    p[1] = (REAL)(var < least * least ? least : rk_sqrt(var));
}

// Moments of the middles of bins.
__device__ __forceinline__ void maximise_bins(REAL *p, int n_values, double low, double width, double least, const Flow &flow,
                                              double step) {
    double mean = (double)p[0], own = (double)p[1], std = own * SCALE, s0 = 0.0, s1 = 0.0, s2 = 0.0, missing = flow[n_values];
    for (int x = 0; x < n_values; ++x) {
        double v = low + ((double)x + 0.5) * width, f = flow[x];
        s0 = s0 + f * v;
        s1 = s1 + f * (v * v);
        s2 = s2 + f;
    }
    s0 = s0 + missing * mean;
    s1 = s1 + missing * (own * own * SPREAD + mean * mean);
    s2 = s2 + missing;
    if (!(s2 > 0.0)) return;
    double t1 = (1.0 - step) * mean + step * (s0 / (s2 + 1e-10));
    double t2 = (1.0 - step) * (std * std + mean * mean) + step * (s1 / (s2 + 1e-10));
    double var = t2 - t1 * t1;
    p[0] = (REAL)t1;
    p[1] = (REAL)((var < least * least ? least : rk_sqrt(var)) / SCALE);
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
    } else if (kind == DISCRETE_LOGISTIC) {
        maximise_bins(p, n_values, c0, c1, c2, flow, step);
    } else if (kind == GAUSSIAN) {
        maximise_gaussian(p, c2, flow, step);
    } else if (kind == POISSON) {
        double rate = (double)p[0], hits = flow[0] + flow[3] * rate, count = flow[2] + flow[3] + pseudocount;
        if (count > 0.0) p[0] = (REAL)((1.0 - step) * rate + step * ((hits + pseudocount * rate) / count));
    }
}

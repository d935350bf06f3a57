// Gradient step of the parameters of leaves, in place: one vector of leaves, in unconstrained parameters.
//
//   CATEGORICAL: logits of the values; BERNOULLI, BINOMIAL: the logit; GAUSSIAN, DISCRETE_LOGISTIC: mean / own spread and
//   the logarithm of the spread, which stays from c2 on; POISSON: the logarithm of the rate. Missing values have no part.
//
//   parameters (n_node, n_parameter), chains (n_node, n_statistic + 1) REAL, totals likewise double
//   first, second (n_node, n_parameter) double; second: null for SGD; c0, c1: lower edge and width of the bins
//
// One thread a node, values ascending, in double; change as in circuit_climb.cuh.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/gradient.py::leaf_climb
// op: rpukit.circuits.ops.gradient.leaf_climb
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 3.
#include "circuit_climb.cuh"

struct Flow {
    const REAL *chains;
    const double *totals;
    __device__ __forceinline__ double operator[](int i) const { return totals[i] + (double)chains[i]; }
};

__device__ __forceinline__ void climb_table(REAL *p, int n, const Flow &flow, const Climb &climb, u64 at) {
    double whole = 0.0, sum = 0.0;
    for (int x = 0; x < n; ++x) whole = whole + flow[x];
    for (int x = 0; x < n; ++x) sum = sum + (double)p[x] * rk_exp(climb.step(at + x, flow[x] - whole * (double)p[x]));
    for (int x = 0; x < n; ++x) p[x] = (REAL)((double)p[x] * rk_exp(climb.change(at + x)) / sum);
}

__device__ __forceinline__ void climb_trials(REAL *p, int n_values, const Flow &flow, const Climb &climb, u64 at) {
    double hits = 0.0, whole = 0.0, q = (double)p[0];
    for (int x = 0; x < n_values; ++x) {
        hits = hits + flow[x] * (double)x;
        whole = whole + flow[x];
    }
    double up = q * rk_exp(climb.step(at, hits - (double)(n_values - 1) * whole * q));
    p[0] = (REAL)(up / (up + (1.0 - q)));
}

// An edge of a bin, outer ones at infinity: where it lies in units of the scale, and the logistic function on both sides.
struct Edge {
    double z, up, down;
    __device__ __forceinline__ Edge(int i, int n, double z_) : z(z_), up(rk_sigmoid(z_)), down(rk_sigmoid(-z_)) {
        if (i == 0) z = 0.0, up = 0.0, down = 1.0;
        if (i == n) z = 0.0, up = 1.0, down = 0.0;
    }
    __device__ __forceinline__ double steep() const { return z * up * down; }
};

// Slopes of a logistic distribution in mean / scale and log scale. A bin has s(b) - s(a), and s' = s (1 - s).
__device__ __forceinline__ double2 bin_slopes(const Flow &flow, int n, double low, double width, double mean, double scale) {
    double2 sum = make_double2(0.0, 0.0);
    double z = (low - mean) / scale;
    Edge a(0, n, z);
    for (int x = 0; x < n; ++x) {
        double next = (low + width * (double)(x + 1) - mean) / scale;
        Edge b(x + 1, n, next);
        double part = z > 0.0 ? a.down - b.down : b.up - a.up;  // of the smaller ones, which keeps their digits
        sum.x = sum.x + flow[x] * (a.up - b.down);
        sum.y = sum.y + flow[x] * ((a.steep() - b.steep()) / rk_max(part, 1e-300));
        a = b, z = next;
    }
    return sum;
}

__device__ __forceinline__ void climb_moments(REAL *p, int kind, int n_values, double c0, double c1, double c2, const Flow &flow,
                                              const Climb &climb, u64 at) {
    double mean = (double)p[0], spread = (double)p[1];
    double2 slope;
    if (kind == DISCRETE_LOGISTIC) {
        slope = bin_slopes(flow, n_values, c0, c1, mean, spread);
    } else {
        slope.x = flow[0] / spread;  // moments about the mean
        slope.y = flow[1] / (spread * spread) - flow[2];
    }
    double by_mean = climb.step(at, slope.x), by_spread = climb.step(at + 1, slope.y);
    double least = kind == DISCRETE_LOGISTIC ? c2 / 1.8137993642342178 : c2;  // pi / sqrt(3)
    p[0] = (REAL)(mean + spread * by_mean);
    p[1] = (REAL)rk_max(spread * rk_exp(by_spread), least);
}

extern "C" __global__ void __launch_bounds__(64)
leaf_climb(int n_node, int kind, int n_values, int n_parameter, int n_statistic, double c0, double c1, double c2, double weight,
           double rate, double momentum, double decay, double clip, double lack, double lack2, const REAL *chains,
           const double *totals, double *first, double *second, REAL *parameters) {
    int n = blockIdx.x * 64 + threadIdx.x;
    if (n >= n_node) return;
    Climb climb{weight, rate, momentum, decay, clip, lack, lack2, first, second};
    u64 at = (u64)n * n_parameter, from = (u64)n * (n_statistic + 1);
    REAL *p = parameters + at;
    Flow flow{chains + from, totals + from};
    if (kind == CATEGORICAL) {
        climb_table(p, n_parameter, flow, climb, at);
    } else if (kind == BERNOULLI || kind == BINOMIAL) {
        climb_trials(p, n_values, flow, climb, at);
    } else if (kind == DISCRETE_LOGISTIC || kind == GAUSSIAN) {
        climb_moments(p, kind, n_values, c0, c1, c2, flow, climb, at);
    } else if (kind == POISSON) {
        p[0] = (REAL)((double)p[0] * rk_exp(climb.step(at, flow[0] - flow[2] * (double)p[0])));
    }
}

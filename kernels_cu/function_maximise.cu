// EM step of leaves that are evaluated by functions, one built-in kind: parameters go a share of the way to those of largest
// expected log-likelihood.
//
//   function: number in circuit_leaves.cuh; limit: least deviation, or largest shape or concentration; successes: of a
//   negative binomial. share = step flow / (flow + missing + pseudocount), on the plane for angles
//   chains REAL, totals double (n_node, n_statistic + 2): flow, flow t of each statistic t, flow of missing values; added
//   parameters (n_node, n_parameter) REAL: a node without flow, or whose new parameters are not finite, keeps its own
//
// Grid: nodes / 64, one thread a node. All is double; a parameter is rounded once.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/leaf_steps.py::function_maximise
// op: rpukit.circuits.ops.evaluated.function_maximise
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 3; Minka, "Estimating a Gamma distribution", 2002; Mardia, Jupp, "Directional
// statistics", 2000.
#include "circuit_leaves.cuh"

#define NEWTON 6  // steps
#define SHIFT 10  // digamma and trigamma are series from here on
#define FAR 30.0  // Bessel's functions are series in 1 / x from here on
#define TERMS 80
#define PI 3.141592653589793
#define TWO_PI 6.283185307179586
#define LEAST 1e-6  // concentration

// Bernoulli numbers B2 to B16; 1 - I1(x) / I0(x) = sum of RATIO[k] x^-(k + 1)
__device__ const double NUMBERS[8] = {1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0, -3617.0 / 510.0};
__device__ const double RATIO[8] = {1.0 / 2.0, 1.0 / 8.0, 1.0 / 8.0, 25.0 / 128.0, 13.0 / 32.0, 1073.0 / 1024.0, 103.0 / 32.0, 375733.0 / 32768.0};

__device__ double digamma(double x) {
    double less = 0.0, y = x + (double)SHIFT, z = 1.0 / (y * y), tail = 0.0;
    for (int k = 0; k < SHIFT; ++k) less = less + 1.0 / (x + (double)k);
    for (int k = 8; k > 0; --k) tail = (tail + NUMBERS[k - 1] / (double)(2 * k)) * z;
    return ((rk_log(y) - 0.5 / y) - tail) - less;
}

__device__ double trigamma(double x) {
    double more = 0.0, y = x + (double)SHIFT, z = 1.0 / (y * y), tail = 0.0;
    for (int k = 0; k < SHIFT; ++k) more = more + 1.0 / ((x + (double)k) * (x + (double)k));
    for (int k = 8; k > 0; --k) tail = (tail + NUMBERS[k - 1]) * z;
    return more + ((1.0 + 0.5 / y) + tail) / y;
}

// 1 - I1(x) / I0(x), without loss where it is small.
__device__ double bessel_ratio_rest(double x) {
    double found = 0.0;
    if (x < FAR) {
        for (int k = TERMS; k > 0; --k) found = 1.0 / ((double)(2 * k) / x + found);
        return 1.0 - found;
    }
    for (int k = 7; k >= 0; --k) found = (found + RATIO[k]) / x;
    return found;
}

// The angle of (x, y), of (0, 0) 0: a guess to 0.005, then steps whose error is the cube of that before.
__device__ double angle_of(double y, double x) {
    double u = fabs(y), v = fabs(x), a = (u < v ? u : v) / (u < v ? v : u), guess = a * (0.9724 - 0.1919 * (a * a));
    double length = rk_sqrt(x * x + y * y);
    if (length == 0.0) return 0.0;
    if (u > v) guess = 0.5 * PI - guess;
    if (x < 0.0) guess = PI - guess;
    if (y < 0.0) guess = -guess;
    for (int k = 0; k < 3; ++k) {
        double2 wave = rk_sin_cos(guess);
        guess = guess + (y * wave.y - x * wave.x) / length;
    }
    return guess;
}

__device__ double wrapped(double angle) {
    double r = angle - TWO_PI * rint(angle / TWO_PI);
    return r < -PI ? -PI : r > PI ? PI : r;
}

__device__ double at_least(double v, double low) { return v < low ? low : v; }  // NaN stays
__device__ double at_most(double v, double high) { return v > high ? high : v; }
__device__ bool is_finite(double v) { return fabs(v) < RK_INF64; }

__device__ void gamma_step(const double *p, const double *t, double limit, double *made) {
    double a = t[1] / t[0], b = t[2] / t[0], spread = at_least((rk_log1p(a) - a) - b, 0.5 / limit);
    double root = rk_sqrt((spread - 3.0) * (spread - 3.0) + 24.0 * spread), shape = ((3.0 - spread) + root) / (12.0 * spread);
    for (int k = 0; k < NEWTON; ++k) {
        double slope = (shape * shape) * (1.0 / shape - trigamma(shape));
        double inverse = 1.0 / shape + ((rk_log(shape) - digamma(shape)) - spread) / slope;
        if (inverse > 0.0) shape = 1.0 / inverse;
    }
    made[0] = at_most(shape, limit);
    made[1] = made[0] / ((p[0] / p[1]) * (1.0 + a));
}

__device__ void von_mises_step(const double *p, const double *t, double limit, double *made) {
    double c = t[1] / t[0], s = t[2] / t[0], length = rk_sqrt((1.0 - c) * (1.0 - c) + s * s);
    double rest = at_most(at_least(((2.0 * c - c * c) - s * s) / (1.0 + length), 0.5 / limit), 1.0), r = 1.0 - rest;
    double kappa = at_least(r * (2.0 - r * r) / (rest * (1.0 + r)), LEAST);
    for (int k = 0; k < NEWTON; ++k) {
        double found = bessel_ratio_rest(kappa), ratio = 1.0 - found, slope = found * (1.0 + ratio) - ratio / kappa;
        double next = kappa + (found - rest) / slope;
        kappa = next > 0.0 ? next : 0.5 * kappa;
    }
    made[0] = p[0] + angle_of(s, 1.0 - c);
    made[1] = at_most(kappa, limit);
}

// The parameters of largest expected log-likelihood.
__device__ void largest(int function, const double *p, const double *t, double limit, double successes, double *made) {
    switch (function) {
    case 0: made[0] = t[0] / (t[0] + t[1]); return;
    case 1: {
        double hits = successes * t[0];
        made[0] = hits / (hits + t[1]);
        return;
    }
    case 2: made[0] = t[0] / t[1]; return;
    case 3: gamma_step(p, t, limit, made); return;
    case 4: {
        double mean = t[1] / t[0], var = at_least(t[2] / t[0] - mean * mean, limit * limit);
        made[0] = p[0] + mean, made[1] = rk_sqrt(var);
        return;
    }
    case 5: von_mises_step(p, t, limit, made); return;
    default: {
        double shift = t[2] / t[1], var = (t[3] - t[2] * shift) / t[0];
        made[0] = p[0] + shift, made[1] = rk_sqrt(at_least(var, limit * limit));
    }
    }
}

// A share of the way; of angles in the plane, where the expected log-likelihood is concave.
__device__ void go(int function, int n_parameter, const double *p, double share, double *made) {
    if (function != 5) {
        for (int k = 0; k < n_parameter; ++k) made[k] = p[k] + share * (made[k] - p[k]);
    } else if (share == 1.0) {
        made[0] = wrapped(made[0]);
    } else {
        double2 from = rk_sin_cos(p[0]), to = rk_sin_cos(made[0]);
        double x = p[1] * from.y, y = p[1] * from.x;
        x = x + share * (made[1] * to.y - x), y = y + share * (made[1] * to.x - y);
        made[0] = angle_of(y, x);
        made[1] = at_least(rk_sqrt(x * x + y * y), LEAST);
    }
}

extern "C" __global__ void __launch_bounds__(64)
function_maximise(int n_node, int function, int n_parameter, int n_statistic, double limit, double successes, double step,
                  double pseudocount, const REAL *chains, const double *totals, REAL *parameters) {
    int n = blockIdx.x * 64 + threadIdx.x;
    if (n >= n_node) return;
    double p[2] = {}, made[2] = {}, t[4] = {};
    u64 at = (u64)n * (n_statistic + 2);
    for (int k = 0; k <= n_statistic; ++k) t[k] = totals[at + k] + (double)chains[at + k];
    double missing = totals[at + n_statistic + 1] + (double)chains[at + n_statistic + 1];
    if (!(t[0] > 0.0)) return;
    for (int k = 0; k < n_parameter; ++k) p[k] = (double)parameters[n * n_parameter + k];
    largest(function, p, t, limit, successes, made);
    bool good = is_finite(made[0]) && is_finite(made[1]);
    go(function, n_parameter, p, step * (t[0] / ((t[0] + missing) + pseudocount)), made);
    if (!good || !is_finite(made[0]) || !is_finite(made[1])) return;
    for (int k = 0; k < n_parameter; ++k) parameters[n * n_parameter + k] = (REAL)made[k];
}

// Finalisation of sums: the value from the largest input and a total, and recomputation of sums that underflowed.
#pragma once
#include "circuit_rows.cuh"

#ifndef LIFT
#define LIFT 1
#endif

struct Place { int row[WIDTH ? WIDTH : 1]; };  // or the element

struct Inputs {
    const int *ids;
    const double *from;  // values or elements of the block's first sample
    int width;  // of a sample
    __device__ __forceinline__ Place place(int k) const {
        Place p;
#pragma unroll
        for (int j = 0; j < (WIDTH ? WIDTH : 1); ++j) p.row[j] = ids[(u64)k * (WIDTH ? WIDTH : 1) + j];
        return p;
    }
    __device__ __forceinline__ double value(int b, const Place &p) const {
        const double *line = from + (u64)b * width;
        return WIDTH ? product_of(p.row, line) : line[p.row[0]];
    }
};

// The same by the largest value that has a weight, as one chain over the children that have one.
__device__ __forceinline__ double own_sum(const REAL *weights, int step, int n_child, int b, const Inputs &input) {
    double m = IMPOSSIBLE;
    REAL total = (REAL)0;
    for (int k = 0; k < n_child; ++k)
        if (weights[(u64)k * step] > (REAL)0) m = rk_max(m, input.value(b, input.place(k)));
    if (!(m > IMPOSSIBLE)) return IMPOSSIBLE;
    for (int k = 0; k < n_child; ++k) {
        REAL w = weights[(u64)k * step];
        if (w > (REAL)0) total = rk_fma(w, rk_exp((REAL)(input.value(b, input.place(k)) - m)), total);
    }
    return m + (double)rk_log(total);
}

// Value of a sum.
__device__ __forceinline__ double value_of(REAL total, REAL largest, const REAL *weights, int step, int n_child, int b, const Inputs &input) {
    if (total >= rk_tiny(total)) return (double)largest + (double)rk_log(total);
    return largest > NOTHING ? own_sum(weights, step, n_child, b, input) : IMPOSSIBLE;
}

struct Parent {
    const REAL *weights;
    int row, size;  // of its nodes
};
struct Parents {
    const int *group, *place, *row, *size;
    const i64 *theta_first;
    const REAL *theta;
    __device__ __forceinline__ Parent operator()(i64 p) const {
        int g = group[p];
        return Parent{theta + theta_first[g] + (u64)place[p] * size[g], row[g], size[g]};
    }
};

struct Lifts {
    const double *values, *lift;  // of the block's first sample
    const REAL *flows;
    int width, row;  // of a sample; the group's first
    __device__ __forceinline__ int place(int k) const { return k; }
    __device__ __forceinline__ double value(int b, int k) const {
        u64 at = (u64)b * width + row + k;
        return LIFT ? lift[at] : lift_of(values[at], flows[at]);
    }
};

// log sum_m theta[e, m] exp(lift m) by the largest lift that has a weight; parents start to stop - 1.
template <class Of>
__device__ __forceinline__ double own_parents(const Of &of, i64 start, i64 stop, int b, const Lifts &lifts) {
    double m = IMPOSSIBLE;
    REAL total = (REAL)0;
    for (int pass = 0; pass < 2; ++pass) {
        for (i64 p = start; p < stop; ++p) {
            Parent one = of(p);
            for (int k = 0; k < one.size; ++k) {
                if (!(one.weights[k] > (REAL)0)) continue;
                double above = lifts.value(b, one.row + k);
                if (pass)
                    total = rk_fma(one.weights[k], rk_exp((REAL)(above - m)), total);
                else
                    m = rk_max(m, above);
            }
        }
        if (!(m > IMPOSSIBLE)) return IMPOSSIBLE;
    }
    return m + (double)rk_log(total);
}

// Flow of an element of value v, from the largest lift above it and a total.
__device__ __forceinline__ REAL flow_by(double v, REAL largest, REAL total) {
    return rk_exp((REAL)((v + (double)largest) + (double)rk_log(total)));
}

// The same, also where the total underflowed; its parents are own to own + n_parent - 1.
template <class Of>
__device__ __forceinline__ REAL flow_of(double v, REAL total, REAL largest, const Of &of, i64 own, int n_parent, int b, const Lifts &lifts) {
    if (!(v > IMPOSSIBLE && largest > NOTHING)) return (REAL)0;
    if (total >= rk_tiny(total)) return flow_by(v, largest, total);
    double up = own_parents(of, own, own + n_parent, b, lifts);
    return up > IMPOSSIBLE ? rk_exp((REAL)(v + up)) : (REAL)0;
}

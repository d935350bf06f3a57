// A gradient ascent step, in double: update the optimiser's moments of a parameter, and compute its change.
//
//   g = slope / weight, cut at clip; SGD: M = m M + g, change = rate M; Adam: M = m M + (1 - m) g, V = d V + (1 - d) g g,
//   change = rate (M / lack / (sqrt(V / lack2) + 1e-8)), lack = 1 - m^k, lack2 = 1 - d^k; change is cut at 50
//
// Mirror: rpukit/circuits/_mirror/gradient.py.
#pragma once
#include "circuit_rows.cuh"

#define STEEPEST 50.0

__device__ __forceinline__ double cut_at(double x, double most) { return rk_min(rk_max(x, -most), most); }

struct Climb {
    double weight, rate, momentum, decay, clip, lack, lack2;
    double *first, *second;  // second: null for SGD

    __device__ __forceinline__ double change(u64 i) const {
        double c = rate * first[i];
        if (second) c = rate * (first[i] / lack / (rk_sqrt(second[i] / lack2) + 1e-8));
        return cut_at(c, STEEPEST);
    }
    __device__ __forceinline__ double step(u64 i, double slope) const {
        double g = cut_at(slope / weight, clip), m = first[i] * momentum;
        if (second) {
            first[i] = m + (1.0 - momentum) * g;
            second[i] = second[i] * decay + (1.0 - decay) * (g * g);
        } else {
            first[i] = m + g;
        }
        return change(i);
    }
};

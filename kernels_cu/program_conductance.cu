// Program weights as conductances with programming noise, split over the devices of each cell.
//
//   v = w scale;   target = clip((sign v - start) inverse, 0, span) + base   (with TABLE: a line through nodes)
//   g = clip(target + sigma(x) xi_0, low, high),   x = target unit
//   nu = nu_scale post(mean(x) + std(x) xi_1),     post: LAW 1 |.|, 2 as it is
//
//   weight (n); fit (2): scale (1 / weight units) and shift, of which the first counts here
//   planes (n_plane, 8): 0 sign, 1 start, 2 inverse, 3 base, 4 span, 5 nodes, 6 place of the x, 7 of the y in tables
//   curves: rk_curve.cuh; 0 sigma, 1 mean, 2 std, in microsiemens and of x
//   conductance, nu (n_plane, n)   float32; nu only where LAW is not 0
//   status (1): not zero: do nothing
//
// Draws: op 17, index = number of the cell in its tile / 4, sample = event, of plane p block 2 p for the noise of programming and block 2 p + 1
// for that of nu, of both word cell % 4.
// With STUCK a device is stuck, where U is below one of three bounds, at base, at base + span, or anywhere between,
// and its nu is 0; draws: op 20, sample = stuck_event, block 2 p whether, block 2 p + 1 where.
// NOISE 0 writes the targets and draws nothing.
//
// A thread takes four neighbouring cells, which share blocks of draws, plane after plane, in a
// grid-stride loop, so that values common to all cells are computed once.
//
// Macros: NOISE, TABLE, LAW, STUCK; SIGMA, MEAN, STD: the kinds of the curves; DEGREE: the highest of their
// polynomials; PLANES: n_plane; WIDE; BY_COLUMNS: the cells are `width`
// columns of a tile (rk_cells.cuh); `base` is the number of the first cell in it. These three are multiples of 4.
// mirror: rpukit/inference/_mirror.py::program_conductance
// op: rpukit.inference.conductance.ops.program_conductance
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: NOISE=0 LAW=0
// check: TABLE=1 LAW=2 MEAN=0 STD=0 PLANES=6
// check: STUCK=1 SIGMA=3 MEAN=3 STD=3
// check: DEGREE=2
// check: BY_COLUMNS=1
// check: BY_COLUMNS=1 STUCK=1 SIGMA=3 MEAN=3 STD=3
// source: Nandakumar et al., ICECS 2020; Joshi et al., Nat. Commun. 11:2473 (2020).
#include "rk_cells.cuh"
#include "rk_philox.cuh"
#include "rk_curve.cuh"

#ifndef NOISE
#define NOISE 1
#endif
#ifndef TABLE
#define TABLE 0
#endif
#ifndef LAW
#define LAW 1
#endif
#ifndef STUCK
#define STUCK 0
#endif
#ifndef PLANES
#define PLANES 2
#endif
#ifndef SIGMA
#define SIGMA 0
#endif
#ifndef MEAN
#define MEAN 4
#endif
#ifndef STD
#define STD 4
#endif
#ifndef DEGREE
#define DEGREE 5
#endif
#ifndef BY_COLUMNS
#define BY_COLUMNS 0
#endif
#define OP_PROGRAM 17u
#define OP_STUCK 20u

// The devices of a cell: of the two of a pair, one has its lowest conductance as its target.
#define PAIR (PLANES % 2 ? 1 : 2)
#define ONE_IS_COLD (PAIR == 2 && !TABLE)

// Deviation of programming, mean and deviation of the drift coefficient.
struct Spread {
    float sigma, mean, std;
};

struct Curves {
    RkCurve<NOISE ? SIGMA : 3, DEGREE> sigma;
    RkCurve<LAW ? MEAN : 3, DEGREE> mean;
    RkCurve<LAW ? STD : 3, DEGREE> std;

    __device__ __forceinline__ Spread at(float x) const {
        return {NOISE ? sigma(x) : 0.0f, LAW ? mean(x) : 0.0f, LAW ? std(x) : 0.0f};
    }
};

__device__ __forceinline__ float target_of(float v, const float *plane, const float *tables) {
    if (TABLE) return rk_line((int)plane[5], tables + (int)plane[6], tables + (int)plane[7], v);
    return rk_limit((plane[0] * v - plane[1]) * plane[2], 0.0f, plane[4]) + plane[3];
}

__device__ __forceinline__ float drift_of(float v, float nu_scale) {
    return (LAW == 1 ? fabsf(v) : v) * nu_scale;
}

extern "C" __global__ void __launch_bounds__(256, STUCK ? 2 : 3)
program_conductance(u64 n, u64 base, int width, int pitch, float unit, float low, float high, float nu_scale, u64 event, float at_low, float at_high,
                    float anywhere, u64 stuck_event, const float *__restrict__ weight, const float *__restrict__ fit,
                    const float *__restrict__ planes, const float *__restrict__ tables,
                    const float *__restrict__ curves, float *__restrict__ conductance, float *__restrict__ nu,
                    const int *__restrict__ status, u32 key0, u32 key1) {
    if (*status) return;
    uint2 key = make_uint2(key0, key1);
    Curves curve = {{curves, 0}, {curves, 1}, {curves, 2}};
    float scale = fit[0], least = planes[3];
    Spread cold = curve.at(least * unit);
    for (u64 first = ((u64)blockIdx.x * 256 + threadIdx.x) * 4; first < n; first += (u64)gridDim.x * 1024) {
        u64 group = (BY_COLUMNS ? rk_cell(base, first, width, pitch) : base + first) >> 2;
        float4 cells = rk_load4(weight, first, n);
        float v[4] = {cells.x * scale, cells.y * scale, cells.z * scale, cells.w * scale};
#pragma unroll 1
        for (int pair = 0; pair < PLANES; pair += PAIR) {
            uint4 draws[PAIR][2];
#pragma unroll
            for (int k = 0; k < PAIR; ++k) {
                if (NOISE) draws[k][0] = rk_block(key, OP_PROGRAM, group, event, 2 * (pair + k));
                if (LAW) draws[k][1] = rk_block(key, OP_PROGRAM, group, event, 2 * (pair + k) + 1);
            }
            float target[PAIR][4];
            Spread hot[4];
#pragma unroll
            for (int c = 0; c < 4; ++c) {
#pragma unroll
                for (int k = 0; k < PAIR; ++k) target[k][c] = target_of(v[c], planes + (pair + k) * 8, tables);
                if (ONE_IS_COLD) hot[c] = curve.at(fmaxf(target[0][c], target[PAIR - 1][c]) * unit);
            }
#pragma unroll
            for (int k = 0; k < PAIR; ++k) {
                u32 p = pair + k;
                float xi[4], turn[4], whether[4], where[4], g[4], slope[4];
                if (NOISE) rk_normals(draws[k][0], xi);
                if (LAW) rk_normals(draws[k][1], turn);
                if (STUCK) {
                    rk_uniforms(rk_block(key, OP_STUCK, group, stuck_event, 2 * p), whether);
                    rk_uniforms(rk_block(key, OP_STUCK, group, stuck_event, 2 * p + 1), where);
                }
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    g[c] = target[k][c];
                    Spread s = ONE_IS_COLD ? (g[c] > least ? hot[c] : cold) : curve.at(g[c] * unit);
                    if (NOISE) g[c] = rk_limit(__fmaf_rn(s.sigma, xi[c], g[c]), low, high);
                    slope[c] = LAW ? drift_of(__fmaf_rn(s.std, turn[c], s.mean), nu_scale) : 0.0f;
                    if (STUCK && whether[c] < anywhere) {
                        float u = whether[c];
                        g[c] = __fmaf_rn(planes[p * 8 + 4], u < at_low ? 0.0f : u < at_high ? 1.0f : where[c], least);
                        slope[c] = 0.0f;
                    }
                }
                rk_store4(conductance + p * n, first, n, g);
                if (LAW) rk_store4(nu + p * n, first, n, slope);
            }
        }
    }
}

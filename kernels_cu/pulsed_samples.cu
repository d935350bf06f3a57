// Pulsed update by a few samples in one launch, trains included: pulse_trains and pulsed_update together.
//
// Each block makes the trains that it needs itself, since draws have coordinates and cost less than a second
// launch: first those of d for its ROWS rows; then, of x, only the slots in which one of these rows fired.
//
//   x (n_batch, n_in), d (n_batch, n_out)            REAL; n_batch <= SAMPLES
//   numbers of the trains: see pulse_trains.cu; flags 1 unit scale, 2 managed, 4 managed length, 8 stochastic
//       rounding; base_length <= 31
//   planes, globals, weight, persistent, n_pulses, counts, flip: see pulsed_update.cu
//   status (1)                                       not zero: do nothing; a non-finite input stores `call`
//
// Grid: (blocks of columns, blocks of ROWS rows); each thread has CELLS neighbouring columns. Every block
// reads all inputs, for their maxima (which have no order) and to see whether they are finite, so that all
// blocks agree on doing nothing.
//
// Macros: REAL, STEP, HAS_RUN, N_PLANE, N_GLOBAL, WRITE_NOISE, COUNT as in pulsed_update.cu; THREADS, CELLS
//         (4 needs n_in % 4 == 0), ROWS, SAMPLES.
// mirror: rpukit/analog/_mirror/samples.py::pulsed_samples
// op: rpukit.analog.update.few_samples.pulsed_samples
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: CELLS=1 ROWS=4
// check: HAS_RUN=0 STEP=linear_step N_PLANE=6 WRITE_NOISE=1 COUNT=1
// check: HAS_RUN=0 STEP=exp_step SAMPLES=4
// check: HAS_RUN=0 STEP=pow_reference_step N_PLANE=7 SAMPLES=4
// check: HAS_RUN=0 STEP=piecewise_step N_GLOBAL=72
// check: REAL=double
// source: Gokmen, Vlasov, Front. Neurosci. 10:333 (2016), eq. 2; the models: device_steps.cuh.
#include "pulse_macros.cuh"
#ifndef THREADS
#define THREADS 256
#endif
#ifndef CELLS
#define CELLS 2
#endif
#ifndef ROWS
#define ROWS 8
#endif
#ifndef SAMPLES
#define SAMPLES 1
#endif
#define IMPLICIT 0
#define CHUNK SAMPLES
#define WARPS (THREADS / 32)
// The words of x are in shared memory: each thread has made those that it reads.
#define X_WORDS(u, s, col) ((u).x_train + ((s) * THREADS + threadIdx.x) * CELLS)
#include "pulse_slots.cuh"
#include "pulse_walk.cuh"

struct Inputs {
    REAL lr, granularity, grad_scale, x_res, d_res;
    int base_length, flags;
    const REAL *x, *d;
};

// What the warps of a block found to be the largest of each sample.
struct Largest { REAL x[SAMPLES][WARPS], d[SAMPLES][WARPS]; };

// The largest |v| of those that a warp looks at.
__device__ __forceinline__ REAL largest(const REAL *v, int n, bool &finite) {
    REAL most = 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        REAL a = rk_abs(v[i]);
        finite = finite && a <= rk_largest(a);
        most = rk_max(most, a);
    }
    for (int lane = 16; lane; lane >>= 1) most = rk_max(most, __shfl_xor_sync(ALL_LANES, most, lane));
    return most;
}

__device__ __forceinline__ Scales scales_of_sample(const Inputs &in, const Largest &most, int s) {
    REAL x_max = most.x[s][0], d_max = most.d[s][0];
    for (int w = 1; w < WARPS; ++w) {
        x_max = rk_max(x_max, most.x[s][w]);
        d_max = rk_max(d_max, most.d[s][w]);
    }
    return scales_of(in.lr, in.granularity, in.base_length, in.flags & 1, in.flags & 2, in.flags & 4, in.grad_scale,
                     x_max, d_max);
}

// A warp lists the samples that pulse a row: its lanes draw the slots of d, one each.
__device__ __forceinline__ void list_of_row(const Update &u, const Inputs &in, const Largest &most, int row, List &list,
                                            u32 *wanted) {
    int lane = threadIdx.x & 31;
    u32 mine = 0u;
    for (int s = 0; s < u.n_batch; ++s) {
        Scales scales = scales_of_sample(in, most, s);
        REAL v = row < u.n_out ? in.d[(u64)s * u.n_out + row] : 0.0f;
        u64 sample = u.first_sample + s;
        REAL p = rounded(rk_abs(v) * scales.of_d, in.d_res, in.flags & 8, u.key, OP_D, row, sample);
        bool fires = p > 0.0f && lane < scales.length && p > rk_uniform(rk_word(u.key, OP_D, row, sample, lane));
        u32 word = __ballot_sync(ALL_LANES, fires);
        if (word && v < 0.0f) word |= SIGN_BIT;
        if (lane == s) mine = word;
    }
    if (mine) atomicOr(&wanted[lane], mine & ~SIGN_BIT);
    int n = enlist(u, list, 0, lane, row, mine, mine != 0u);
    if (lane == 0) list.n = n;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
pulsed_samples(int n_batch, int n_in, int n_out, REAL lr, REAL granularity, int base_length, REAL grad_scale,
               REAL x_res, REAL d_res, int flags, int flip, u64 first_sample, int call, const REAL *x, const REAL *d,
               const REAL *planes, const REAL *globals, REAL *weight, REAL *persistent, i64 *n_pulses, i64 *counts,
               int *status, u32 key0, u32 key1) {
    __shared__ List lists[ROWS];
    __shared__ Largest most;
    __shared__ u32 wanted[SAMPLES];
    __shared__ __align__(16) u32 words[SAMPLES * THREADS * CELLS];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, row0 = blockIdx.y * ROWS;
    int col = (blockIdx.x * THREADS + threadIdx.x) * CELLS;
    bool finite = true;
    if (threadIdx.x < SAMPLES) wanted[threadIdx.x] = 0u;
    for (int s = 0; s < n_batch; ++s) {
        REAL x_max = largest(x + (u64)s * n_in, n_in, finite), d_max = largest(d + (u64)s * n_out, n_out, finite);
        if (lane == 0) { most.x[s][warp] = x_max; most.d[s][warp] = d_max; }
    }
    if (!finite) atomicCAS(status, 0, call);
    // A block that sees another's finding has made it itself, so all blocks return or none.
    if (__syncthreads_or(!finite || *status)) return;

    Inputs in = {lr, granularity, grad_scale, x_res, d_res, base_length, flags, x, d};
    Update u = {n_batch, n_in, n_out, flip, 0, first_sample, planes, globals, words, 0, 0,
                weight, WRITE_NOISE ? persistent : weight, counts, make_uint2(key0, key1)};
    for (int r = warp; r < ROWS; r += WARPS) list_of_row(u, in, most, row0 + r, lists[r], wanted);
    __syncthreads();
    for (int s = 0; s < n_batch; ++s) {
        if (!wanted[s]) continue;  // the same for a block
        Scales scales = scales_of_sample(in, most, s);
        for (int c = 0; c < CELLS; ++c) {
            REAL v = col + c < n_in ? x[(u64)s * n_in + col + c] : 0.0f;
            u64 sample = first_sample + s;
            REAL p = rounded(rk_abs(v) * scales.of_x, x_res, flags & 8, u.key, OP_X, col + c, sample);
            words[(s * THREADS + threadIdx.x) * CELLS + c] =
                slots(p, v < 0.0f, 0, scales.length, wanted[s], u.key, OP_X, col + c, sample);
        }
    }
#if N_GLOBAL == 8
    REAL g[8];
    for (int k = 0; k < 8; ++k) g[k] = globals[k];
#else
    const REAL *g = globals;
#endif
    u32 pulses = 0u;
    for (int r = 0; r < ROWS; ++r)
        if (lists[r].n && col < n_in) pulses += walk_row(u, g, lists[r], row0 + r, col);
    pulses = __reduce_add_sync(ALL_LANES, pulses);
    if (lane == 0 && pulses) atomicAdd((u64 *)n_pulses, (u64)pulses);
}

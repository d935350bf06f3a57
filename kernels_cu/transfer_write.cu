// Write transferred values as pulses into slices of the next array: an update by samples of which one side
// is zero but for one line.
//
// Event e is a sample with the values v = d[e] on the lines and 1 on slice i = slices[e], or
// (first_slice + e) mod n_slice. With columns slices are columns, v is d, and the 1 is x; else rows, and the
// other way round. Its trains, their coincidences and what they do to the cells of the slice are
// those of pulse_trains.cu and pulsed_update.cu; no other cell gets a pulse. Slices of one launch are distinct.
//
//   d (n_event, n_line)          REAL
//   slices (n_event)             int32, or null
//   weight, persistent, planes, globals, n_pulses, counts, status   as in pulsed_update.cu
//
// Grid: (blocks of THREADS lines, events); a thread has one cell. With management each block finds the largest |v|
// of its event anew.
// Draws: those of pulse_trains and pulsed_update, sample = number + e.
// Macros: REAL, THREADS, N_WORD; STEP, HAS_RUN,
//         N_PLANE, N_GLOBAL, WRITE_NOISE, COUNT (see pulsed_update.cu).
// mirror: rpukit/analog/_mirror/transfer.py::transfer_write
// op: rpukit.analog.transfer.ops.transfer_write
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: STEP=linear_step HAS_RUN=0 N_PLANE=6
// check: STEP=linear_step HAS_RUN=0 N_PLANE=6 WRITE_NOISE=1 COUNT=1
// check: STEP=piecewise_step HAS_RUN=0 N_GLOBAL=16 N_WORD=9
// check: REAL=double
// check: STEP=linear_step HAS_RUN=0 N_PLANE=6 PROCEDURAL=1 PLANES_OF=linear_planes
// source: Gokmen, Haensch, Front. Neurosci. 14:103 (2020), eq. 2.
#include "pulse_macros.cuh"
#ifndef THREADS
#define THREADS 128
#endif
#define IMPLICIT 0
#define CELLS 1  // of a thread
#define ROWS 1  // of lists that are not made here
#define CHUNK 32
#include "pulse_slots.cuh"
#include "pulse_cells.cuh"

// The pulses of one cell; returns their number.
__device__ __forceinline__ u32 write_cell(const Update &u, const REAL *g, int row, int col, u64 sample, int count, bool up) {
    u64 cell = (u64)row * u.n_in + col;
    REAL p[N_PLANE];
    planes_of_cell(u, cell, col, p);
    uint4 b = rk_block(u.key, OP_STEP, u.first_row + row, sample, 0u);
    uint2 key = make_uint2(b.x, b.y);
    float xi = g[0] != 0.0f ? first_normal(key, col) : 0.0f;
    REAL w = run_of_pulses(u.stored[cell], p, g, up, count, xi, col, key);
    u.stored[cell] = w;
    if (WRITE_NOISE) show(u, g[7], cell, 0, w);
    if (COUNT) u.counts[cell] += count;
    return count;
}

extern "C" __global__ void __launch_bounds__(THREADS)
transfer_write(int n_in, int n_out, int columns, int first_slice, int flip, REAL lr, REAL granularity, int base_length, int unit_scale,
               int managed, int managed_length, REAL grad_scale, REAL res, int stochastic_rounding, u64 number, u64 first_row, const int *slices,
               const REAL *d, const REAL *planes, const REAL *globals, REAL *weight, REAL *persistent, i64 *n_pulses,
               i64 *counts, const int *status, u32 key0, u32 key1) {
    __shared__ REAL warp_max[THREADS / 32];
    if (*status) return;  // the same for every thread of the launch
#if N_GLOBAL == 8
    REAL g[8];
    for (int k = 0; k < 8; ++k) g[k] = globals[k];
#else
    const REAL *g = globals;
#endif
    RECIPE_NUMBERS(numbers, planes);
    int n_slice = columns ? n_in : n_out, n_line = columns ? n_out : n_in;
    int line = blockIdx.x * THREADS + threadIdx.x, e = blockIdx.y, slice = slices ? slices[e] : first_slice + e;
    slice -= slice >= n_slice ? n_slice : 0;
    const REAL *values = d + (u64)e * n_line;
    REAL largest = (REAL)1, v = line < n_line ? values[line] : (REAL)0;
    if (managed) {
        largest = (REAL)0;
        for (int i = threadIdx.x; i < n_line; i += THREADS) largest = rk_max(largest, rk_abs(values[i]));
        for (int lane = 16; lane; lane >>= 1) largest = rk_max(largest, __shfl_xor_sync(ALL_LANES, largest, lane));
        if ((threadIdx.x & 31) == 0) warp_max[threadIdx.x >> 5] = largest;
        __syncthreads();
        for (int warp = 0; warp < THREADS / 32; ++warp) largest = rk_max(largest, warp_max[warp]);
    }
    Scales scales = scales_of(lr, granularity, base_length, unit_scale, managed, managed_length, grad_scale,
                              columns ? (REAL)1 : largest, columns ? largest : (REAL)1);
    u64 sample = number + e, drawn_line = (columns ? first_row : 0) + line, drawn_slice = (columns ? 0 : first_row) + slice;
    uint2 key = make_uint2(key0, key1);
    u32 pulses = 0u;
    if (v != 0.0f) {
        u32 of_slice = columns ? OP_X : OP_D, of_line = columns ? OP_D : OP_X;
        REAL p = rounded(rk_abs(v) * (columns ? scales.of_d : scales.of_x), res, stochastic_rounding, key, of_line, drawn_line, sample);
        REAL q = rounded(columns ? scales.of_x : scales.of_d, res, stochastic_rounding, key, of_slice, drawn_slice, sample);
        int count = 0;
        for (int w = 0; w < N_WORD; ++w) {
            int first = w * SLOTS, last = min(first + SLOTS, scales.length);
            u32 fired = slots(p, false, first, last, ~0u, key, of_line, drawn_line, sample);
            if (fired) count += __popc(slots(q, false, first, last, fired, key, of_slice, drawn_slice, sample));
        }
        Update u = {0, n_in, n_out, flip, 0, sample, planes, globals, 0, 0, 0, weight, WRITE_NOISE ? persistent : weight, counts, key, numbers, first_row};
        bool up = (v < 0.0f) != (flip != 0);
        if (count) pulses = write_cell(u, g, columns ? line : slice, columns ? slice : line, sample, count, up);
    }
    pulses = __reduce_add_sync(ALL_LANES, pulses);
    if ((threadIdx.x & 31) == 0 && pulses) atomicAdd((u64 *)n_pulses, (u64)pulses);
}

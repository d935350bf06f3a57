// Update weights where pulses coincide.
//
// Where a slot of line j of x and of line i of d fire together, cell (i, j) gets a pulse: down where
// the signs agree, up where they differ (reversed by `flip`, for a negative lr). With polarity
// 1 only pulses up count; with -1 only those down, and they go up: both devices of a pair that only goes
// up. For one cell: samples ascending; within a sample one run of n equal pulses, by STEP
// (device_steps.cuh).
//
//   first_row                         number of row 0 in its tile: the arrays may be some rows of it
//   first_col, tile_cols              where BY_COLUMNS is 1: number of column 0 in its tile (a multiple of 32),
//                                     and the columns of the tile
//   weight (n_out, n_in)              REAL, the visible weight, changed in place
//   persistent (n_out, n_in)          REAL, what the pulses act on where WRITE_NOISE is 1
//   planes (N_PLANE, n_out, n_in)     REAL, parameters of the cells; with PROCEDURAL their recipe (cell_planes.cuh)
//   globals (N_GLOBAL)                REAL: 0 dw_min_std, 1.. of the model, 7 deviation of the write noise
//   x_train (n_batch, n_word, n_in), d_train (n_batch, n_word, n_out)   see pulse_trains.cu
//   x_slices (n_batch, ceil(n_in / 32), 32)   or null: the same trains of x by slots (see pulse_trains.cu)
//   n_pulses (1)                      int64, the pulses are added to it
//   counts (n_out, n_in)              int64, the pulses of each cell are added to it where COUNT is 1
//   status (1)                        not zero: do nothing
//
// Grid: (blocks of columns, blocks of ROWS rows). The warps of a block list, for each of its rows, the
// samples whose line of d fired, in order. Then, with LISTS 0, each thread loops over that list for its CELLS
// neighbouring columns (pulse_walk.cuh); with LISTS 1 each warp lists the pulses of SPAN * 32 columns, all
// its lanes draw for them, and each lane applies those of its cells (pulse_lists.cuh). With LISTS 2 a block has one
// row and 32 columns, and its warps share the samples (pulse_scan.cuh).
// Draws: words 0 and 1 of the block at op 7, index row, are the key k and the word v of a row and sample.
// The first pulse of a run, or a run taken at once, has word column % 2 of Philox2x32-10 at (column / 2, v)
// with key k; pulse p > 0 of a run word (p - 1) % 2 at (column, v ^ (p + 1) / 2). Write noise: op 13, index
// cell, draw 0 of the last sample that hit.
//
// Macros: REAL, STEP, HAS_RUN (STEP_run exists), N_PLANE, N_GLOBAL (8 are kept in registers, more are read
//         where they are), WRITE_NOISE, COUNT, IMPLICIT, N_WORD (words of a train), THREADS, LISTS (2 needs SPAN 1,
//         ROWS 1 and at most 256 threads), CELLS (4 needs n_in % 4 == 0), SPAN, ROWS, BLOCKS (of a multiprocessor, at least),
//         CHUNK (samples listed at a time), PROCEDURAL with PLANES_OF and POINTS, BY_COLUMNS.
// mirror: rpukit/analog/_mirror/pulses.py::pulsed_update
// op: rpukit.analog.update.ops.pulsed_update
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: HAS_RUN=0 STEP=linear_step N_PLANE=6
// check: HAS_RUN=0 STEP=linear_step N_PLANE=6 WRITE_NOISE=1 CELLS=1
// check: LISTS=1 ROWS=4
// check: LISTS=1 ROWS=4 HAS_RUN=0 STEP=linear_step N_PLANE=6
// check: LISTS=1 ROWS=4 HAS_RUN=0 STEP=linear_step N_PLANE=6 WRITE_NOISE=1 SPAN=1 COUNT=1
// check: LISTS=2 SPAN=1 ROWS=1
// check: LISTS=2 SPAN=1 ROWS=1 HAS_RUN=0 STEP=linear_step N_PLANE=6 WRITE_NOISE=1 COUNT=1
// check: LISTS=2 SPAN=1 ROWS=1 N_WORD=9 N_GLOBAL=72
// check: LISTS=2 SPAN=1 ROWS=1 PROCEDURAL=1 BY_COLUMNS=1 HAS_RUN=0 STEP=pow_reference_step N_PLANE=7 PLANES_OF=pow_reference_planes POINTS=1
// check: N_WORD=9 N_GLOBAL=72
// check: IMPLICIT=1
// check: IMPLICIT=2 LISTS=1 ROWS=4
// check: HAS_RUN=0 STEP=linear_reference_step N_PLANE=7
// check: HAS_RUN=0 STEP=exp_step
// check: HAS_RUN=0 STEP=pow_step N_PLANE=6
// check: HAS_RUN=0 STEP=pow_reference_step N_PLANE=7
// check: HAS_RUN=0 STEP=piecewise_step N_GLOBAL=16
// check: REAL=double CELLS=2 HAS_RUN=0 STEP=pow_step N_PLANE=6
// check: BY_COLUMNS=1 WRITE_NOISE=1 CELLS=2
// check: BY_COLUMNS=1 LISTS=1 ROWS=4 HAS_RUN=0 STEP=linear_step N_PLANE=6
// check: BY_COLUMNS=1 PROCEDURAL=1 CELLS=2
// check: BY_COLUMNS=1 PROCEDURAL=1 LISTS=1 ROWS=4
// check: REAL=double LISTS=1 ROWS=4 SPAN=2 WRITE_NOISE=1
// check: PROCEDURAL=1 CELLS=2
// check: PROCEDURAL=1 LISTS=1 ROWS=4
// check: PROCEDURAL=1 PLANES_OF=linear_planes HAS_RUN=0 STEP=linear_step N_PLANE=6 CELLS=2
// check: PROCEDURAL=1 PLANES_OF=linear_planes HAS_RUN=0 STEP=linear_step N_PLANE=6 LISTS=1 ROWS=4
// check: PROCEDURAL=1 PLANES_OF=linear_reference_planes HAS_RUN=0 STEP=linear_reference_step N_PLANE=7 LISTS=1
// check: PROCEDURAL=1 PLANES_OF=pow_reference_planes POINTS=1 HAS_RUN=0 STEP=pow_reference_step N_PLANE=7 CELLS=2
// check: PROCEDURAL=1 PLANES_OF=pow_planes HAS_RUN=0 STEP=pow_step N_PLANE=6 REAL=double CELLS=2
// source: Gokmen, Vlasov, Front. Neurosci. 10:333 (2016), eq. 2; the models: device_steps.cuh.
#include "pulse_macros.cuh"
#ifndef IMPLICIT
#define IMPLICIT 0
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef LISTS
#define LISTS 0
#endif
#ifndef CELLS
#define CELLS 4
#endif
#ifndef SPAN
#define SPAN 4
#endif
#ifndef ROWS
#define ROWS 8
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef CHUNK
#define CHUNK (512 / ROWS)
#endif
#include "pulse_cells.cuh"
#if LISTS
#include "pulse_lists.cuh"
#else
#include "pulse_walk.cuh"
#endif
#if LISTS == 2
#include "pulse_scan.cuh"
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
pulsed_update(int n_batch, int n_in, int n_out, int flip, int polarity, u64 first_sample, u64 first_row, int first_col,
              int tile_cols, const REAL *planes, const REAL *globals, const u32 *x_train, const u32 *x_slices, const u32 *d_train,
              REAL *weight, REAL *persistent, i64 *n_pulses, i64 *counts, const int *status, u32 key0, u32 key1) {
    if (*status) return;  // the same for every thread of the launch
#if N_GLOBAL == 8
    REAL g[8];
    for (int k = 0; k < 8; ++k) g[k] = globals[k];
#else
    const REAL *g = globals;
#endif
    RECIPE_NUMBERS(numbers, planes);
    Update u = {n_batch, n_in, n_out, flip, polarity, first_sample, planes, globals, x_train, x_slices, d_train,
                weight, WRITE_NOISE ? persistent : weight, counts, make_uint2(key0, key1), numbers, first_row,
                first_col, tile_cols};
#if LISTS == 2
    __shared__ Scan scan;
    u32 pulses = update_by_scan(u, g, scan);
#elif LISTS
    __shared__ List lists[ROWS];
    __shared__ u32 queues[THREADS / 32][QUEUE];
    u32 pulses = update_by_lists(u, g, lists, queues);
#else
    __shared__ List lists[ROWS];
    u32 pulses = update_by_walk(u, g, lists);
#endif
    pulses = __reduce_add_sync(ALL_LANES, pulses);
    if ((threadIdx.x & 31) == 0 && pulses) atomicAdd((u64 *)n_pulses, (u64)pulses);
}

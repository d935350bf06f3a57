// Read slices of a fast array into the transfer buffer, and extract whole pulses. Each slice is read once,
// after its own sample of a batch; the pulses are for the next array.
//
// Event e reads the values z of slice i = slices[e], or (first_slice + e) mod n_slice, after sample
// t = offset + e / reads * period, through the periphery of a product with a one-hot input. With
// u = kappa, or kappa / rates[t] where there are rates, s = sign of the chopper of i times line_sign, H the buffer:
//   KIND 1: d = -z
//   KIND 2: omega = H + u z,                 q = omega / threshold
//   KIND 3: omega = keep H + s z u,          q = omega, counted where |q| >= 1
//   KIND 4: first Q = M where the chopper flipped at the read before; omega = H + s (z - Q) u, q as 3;
//           then M = (1 - mu) M + mu z
//   n = clip(trunc(q), -length, length); d = -n, or 0 where the event does not write;
//   where n counts: with forget omega = momentum omega, else omega -= (1 - momentum) n unit, and where
//   cap > 0 omega is clipped to +-cap; H = omega. (unit: threshold for KIND 2, else 1)
// With REPLAY the weights are those before the batch: a thread replays the pulses of samples 0 to t on its own
// cell. The update of the whole array replays them, by the same draws, since these are named by row,
// column and sample.
//
//   weight, persistent, planes, globals, x_train, d_train   as in pulsed_update.cu
//   z (n_event, n_line)          REAL, what was read already, or null
//   io (16), line_noise          REAL, see tile_forward.cu; line_noise may be null
//   slices, turns (n_event)      int32, or null; turns: see chop_samples.cu
//   line_sign (n_line)           int8, +-1, or null
//   rates (n_batch)              REAL, or null
//   rule (10)                    REAL: 0 threshold, 1 length, 2 momentum, 3 keep, 4 mu, 5 cap, 6 forget; 7 periphery (0 none,
//                                1 out_scale alone, 2 all), 8 noise of weights (see W_NOISE of tile_forward.cu), 9 slices are columns
//   buffer, mean, past (n_slice, n_line)   REAL, H, M, Q; mean and past for KIND 4 only
//   chopper, switched (n_slice)  int8, flipped here where turns says so, or null
//   d (n_event, n_line)          REAL
//   status (1)                   not zero: do nothing
//
// Grid: (blocks of THREADS lines, events); a thread has one line of one slice. Events of the first pass over the
// slices have kappa_0 and write where writes & 1; those behind slice n_slice - 1 kappa_1 and writes & 2.
// Draws: those of the pulses by key; of the read, with read_key, as in tile_forward.cu: line 0 in, its line out.
// Macros: REAL, KIND, REPLAY; STEP, HAS_RUN, N_PLANE, N_GLOBAL, WRITE_NOISE, IMPLICIT, N_WORD (see pulsed_update.cu).
// mirror: rpukit/analog/_mirror/transfer.py::transfer_read
// op: rpukit.analog.transfer.ops.transfer_read
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: KIND=1
// check: KIND=2
// check: KIND=4
// check: REPLAY=1 STEP=linear_step HAS_RUN=0 N_PLANE=6
// check: REPLAY=1 STEP=linear_step HAS_RUN=0 N_PLANE=6 WRITE_NOISE=1 N_WORD=9
// check: REPLAY=1 STEP=piecewise_step HAS_RUN=0 N_GLOBAL=16 IMPLICIT=1
// check: REPLAY=1 STEP=linear_step HAS_RUN=0 N_PLANE=6 PROCEDURAL=1 PLANES_OF=linear_planes
// check: REAL=double REPLAY=1 IMPLICIT=2
// source: Gokmen, Haensch, Front. Neurosci. 14:103 (2020); Rasch et al., Nature Communications 15:7133 (2024), algorithms 1 to 3.
#ifndef KIND
#define KIND 3
#endif
#ifndef REPLAY
#define REPLAY 0
#endif
#include "pulse_macros.cuh"
#ifndef IMPLICIT
#define IMPLICIT 0
#endif
#define THREADS 128
#define CELLS 1  // of a thread
#define ROWS 1    // of lists that are not made here
#define CHUNK 32
#include "pulse_cells.cuh"
#include "rk_periphery.cuh"

#define COLUMNS (rule[9] != 0.0f)
#define IN_OP (COLUMNS ? 1u : 3u)
#define OUT_OP (COLUMNS ? 2u : 4u)

// Word 0 of a train of d, with the sign of any of its words.
__device__ __forceinline__ u32 word_of_d(const Update &u, int sample, int row) {
    const u32 *d = u.d_train + (u64)sample * N_WORD * u.n_out + row;
    u32 word = d[0], any = word;
    for (int w = 1; w < N_WORD; ++w) any |= d[(u64)w * u.n_out];
    return any ? word | (any & SIGN_BIT) : word;
}

// What a cell shows after the pulses of samples 0 to `last`.
__device__ __forceinline__ REAL replayed(const Update &u, const REAL *g, int last, int row, int col) {
    u64 cell = (u64)row * u.n_in + col;
    REAL w = u.stored[cell], p[N_PLANE];
    int pulsed = -1;
    planes_of_cell(u, cell, col, p);
    const u32 *x = u.x_train + col;
    for (int base = 0; base <= last; base += 32) {
        u32 hits = 0u;
#pragma unroll 8
        for (int a = 0; a < 32; ++a) {  // all loads first: a branch would wait for each
            int s = min(base + a, last);
            u32 x0 = x[(u64)s * N_WORD * u.n_in], d0 = u.d_train[(u64)s * N_WORD * u.n_out + row];
            hits |= (base + a <= last && (!IMPLICIT || d0) && coincidences(u, x0, d0, s, row, col) ? 1u : 0u) << a;
        }
        for (; hits; hits &= hits - 1u) {
            int s = base + __ffs((int)hits) - 1;
            u32 x0 = x[(u64)s * N_WORD * u.n_in], d0 = word_of_d(u, s, row);
            uint4 b = rk_block(u.key, OP_STEP, row, u.first_sample + s, 0u);
            uint2 key = make_uint2(b.x, b.y);
            float xi = g[0] != 0.0f ? first_normal(key, col) : 0.0f;
            w = run_of_pulses(w, p, g, goes_up(u, x0, d0, s, col), coincidences(u, x0, d0, s, row, col), xi, col, key);
            pulsed = s;
        }
    }
    if (!WRITE_NOISE) return w;
    if (pulsed < 0) return u.weight[cell];
    return rk_fma(g[7], (REAL)rk_normal(rk_word(u.key, OP_WRITE_NOISE, cell, u.first_sample + pulsed, 0u)), w);
}

// The product of one weight with 1, by the periphery of a tile; no bound management.
__device__ __forceinline__ REAL read_line(REAL w, const REAL *rule, const REAL *io, REAL deviation, int line, u64 number, uint2 key) {
    if (rule[7] == 0.0f) return w;
    if (rule[7] == 1.0f) return rk_fma(w, (REAL)1, (REAL)0) * io[8];
    REAL v = input_line((REAL)1, (REAL)1, io, IN_OP, 0u, number, 0u, key);
    REAL y = rk_fma(w, v, (REAL)0), variance = rule[8] == 1.0f ? v * v : rk_abs(w) * (v * v);
    bool rounds = io[11] != 0.0f && io[5] > 0.0f, noisy = deviation > 0.0f, reads = rule[8] != 0.0f && io[9] > 0.0f;
    uint4 b = rounds || noisy || reads ? rk_block(key, OUT_OP, line, number, 0u) : make_uint4(0u, 0u, 0u, 0u);
    if (reads) y = rk_fma(io[9] * rk_sqrt(variance), (REAL)rk_normal(b.x), y);
    if (y < 0.0f) y *= io[7];
    if (noisy) y = rk_fma(deviation, (REAL)rk_normal(b.y), y);
    return clip(convert(y, io[5], rounds, b.z), io[4]) * io[8];
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
transfer_read(int n_in, int n_out, int first_slice, int offset, int period, int reads, int flip, u64 first_sample, u64 number,
              REAL kappa_0, REAL kappa_1, int writes, const int *slices, const int *turns, const signed char *line_sign,
              const REAL *rates, const REAL *z, const REAL *planes, const REAL *globals, const u32 *x_train,
              const u32 *d_train, const REAL *weight, const REAL *persistent, const REAL *io, const REAL *line_noise,
              const REAL *rule, REAL *buffer, REAL *mean, REAL *past, signed char *chopper, signed char *switched, REAL *d,
              const int *status, u32 key0, u32 key1, u32 read_key0, u32 read_key1) {
    RECIPE_NUMBERS(numbers, planes);
    int n_slice = COLUMNS ? n_in : n_out, n_line = COLUMNS ? n_out : n_in;
    int line = blockIdx.x * THREADS + threadIdx.x, e = blockIdx.y, slice = slices ? slices[e] : first_slice + e;
    if (*status || line >= n_line) return;
    bool later = slice >= n_slice;
    slice -= later ? n_slice : 0;
    int last = offset + e / reads * period, row = COLUMNS ? line : slice, col = COLUMNS ? slice : line;
    u64 out = (u64)e * n_line + line;
    REAL v;  // what lasts is held at the largest number: reads, means, the buffer
    if (z) {
        v = z[out];
    } else {
        if (REPLAY) {
#if N_GLOBAL == 8
            REAL g[8];
            for (int k = 0; k < 8; ++k) g[k] = globals[k];
#else
            const REAL *g = globals;
#endif
            Update u = {last + 1, n_in, n_out, flip, 0, first_sample, planes, globals, x_train, 0, d_train,
                        (REAL *)weight, (REAL *)(WRITE_NOISE ? persistent : weight), 0, make_uint2(key0, key1), numbers};
            v = replayed(u, g, last, row, col);
        } else {
            v = weight[(u64)row * n_in + col];
        }
        v = read_line(v, rule, io, line_noise ? line_noise[line] : io[6], line, number + e, make_uint2(read_key0, read_key1));
    }
    v = rk_hold(v);
#if KIND == 1
    d[out] = -v;
#else
    u64 cell = (u64)slice * n_line + line;
    REAL omega = buffer[cell], kappa = later ? kappa_1 : kappa_0, unit = (REAL)1;
    REAL u = rates ? rk_hold(kappa / rates[last]) : kappa, length = rule[1], momentum = rule[2], cap = rule[5];
#if KIND == 2
    omega = rk_hold(rk_fma(u, v, omega));
    unit = rule[0];
    REAL q = omega / unit;
#else
    int turn = turns[e];
    REAL fresh = v, sign = (turn & 1 ? (REAL)-1 : (REAL)1) * (line_sign ? (REAL)line_sign[line] : (REAL)1);
#if KIND == 4
    REAL mu = rule[4], m = mean[cell], q0 = turn & 2 ? m : past[cell];
    if (turn & 2) past[cell] = m;
    fresh = rk_hold(v - q0);
    mean[cell] = rk_hold(rk_fma(mu, v, rk_hold(((REAL)1 - mu) * m)));
#else
    omega = rule[3] * omega;
#endif
    omega = rk_hold(rk_fma(sign * fresh, u, omega));
    REAL q = omega;
#endif
    REAL n = rk_min(rk_max(rk_trunc(q), -length), length);
    if (n != 0.0f) {
        omega = rule[6] != 0.0f ? momentum * omega : rk_fma(-((REAL)1 - momentum) * n, unit, omega);
        if (rule[6] == 0.0f && cap > 0.0f) omega = rk_min(rk_max(omega, -cap), cap);
    }
    buffer[cell] = rk_hold(omega);
    d[out] = writes & (later ? 2 : 1) ? -n : (REAL)0;
#if KIND >= 3
    if (line == 0 && turn & 4) chopper[slice] = turn & 1 ? 1 : -1;
#endif
#if KIND == 4
    if (line == 0) switched[slice] = (turn & 4) != 0;
#endif
#endif
}

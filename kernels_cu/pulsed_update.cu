// Change the weights of a tile by the coincidences of pulse trains.
//
// Where a slot of line j of x and of line i of d fire together, cell (i, j) gets a pulse: down where
// the signs agree, up where they differ (the other way round with `flip`, a negative lr). With polarity
// 1 only pulses up count; with -1 only those down, and they go up: both devices of a pair that only goes
// up. For one cell: samples ascending; within a sample one run of n equal pulses, by STEP
// (device_steps.cuh).
//
//   weight (n_out, n_in)              float32, the visible weight, changed in place
//   persistent (n_out, n_in)          float32, what the pulses act on where WRITE_NOISE is 1
//   planes (N_PLANE, n_out, n_in)     float32, parameters of the cells
//   globals (N_GLOBAL)                float32: 0 dw_min_std, 1.. of the model, 7 deviation of the write noise
//   x_train (n_batch, n_word, n_in), d_train (n_batch, n_word, n_out)   see pulse_trains.cu
//   n_pulses (1)                      int64, the pulses are added to it
//   status (1)                        not zero: do nothing
//
// Grid: (blocks of THREADS * CELLS columns, blocks of ROWS rows). A warp makes, for one row, the
// ordered list of the samples whose line of d fired; then each thread walks that list for its CELLS
// neighbouring columns. Draws, op 7: the first pulse of a run, or a run taken at once: index cell / 4,
// draw cell % 4, so that four neighbours share a block; pulse p > 0 of a run: index cell, draw p + 3.
// Write noise: op 13, index cell, draw 0 of the last sample that hit.
//
// Macros: STEP, HAS_RUN (STEP_run exists), N_PLANE, N_GLOBAL (8 are kept in registers, more are read
//         where they are), WRITE_NOISE, IMPLICIT, N_WORD (words of a train), THREADS, CELLS (4 needs
//         n_in % 4 == 0), ROWS, CHUNK (samples listed at a time).
// mirror: rpukit/analog/_mirror/pulses.py::pulsed_update
// op: rpukit.analog.update.pulsed_update
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: HAS_RUN=0 STEP=linear_step N_PLANE=6
// check: HAS_RUN=0 STEP=linear_step N_PLANE=6 WRITE_NOISE=1 CELLS=1
// check: N_WORD=9 N_GLOBAL=72
// check: IMPLICIT=1
// source: Gokmen, Vlasov, Front. Neurosci. 10:333 (2016), eq. 2; the models: device_steps.cuh.
#include "rk_philox.cuh"
#include "device_steps.cuh"

#ifndef STEP
#define STEP constant_step
#endif
#ifndef HAS_RUN
#define HAS_RUN 1
#endif
#ifndef N_PLANE
#define N_PLANE 4
#endif
#ifndef N_GLOBAL
#define N_GLOBAL 8
#endif
#ifndef WRITE_NOISE
#define WRITE_NOISE 0
#endif
#ifndef IMPLICIT
#define IMPLICIT 0
#endif
#ifndef N_WORD
#define N_WORD 1
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef CELLS
#define CELLS 4
#endif
#ifndef ROWS
#define ROWS 8
#endif
#ifndef CHUNK
#define CHUNK 256
#endif
#define OP_STEP 7u
#define OP_WRITE_NOISE 13u
#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)

#if CELLS == 4
#define LOAD(r, ptr) { float4 v4 = *(const float4 *)(ptr); r[0] = v4.x; r[1] = v4.y; r[2] = v4.z; r[3] = v4.w; }
#define LOAD_WORDS(r, ptr) { uint4 v4 = *(const uint4 *)(ptr); r[0] = v4.x; r[1] = v4.y; r[2] = v4.z; r[3] = v4.w; }
#define STORE(ptr, r) *(float4 *)(ptr) = make_float4(r[0], r[1], r[2], r[3])
#else
#define LOAD(r, ptr) r[0] = *(ptr)
#define LOAD_WORDS(r, ptr) r[0] = *(ptr)
#define STORE(ptr, r) *(ptr) = r[0]
#endif

// The run of n pulses of one sample on one cell.
__device__ __forceinline__ float run_of_pulses(float w, const float *p, const float *g, bool up, int n,
                                               u64 cell, u64 sample, uint2 key) {
    bool noisy = g[0] != 0.0f;
    float xi = noisy ? rk_normal(rk_word(key, OP_STEP, cell >> 2, sample, (u32)cell & 3u)) : 0.0f;
#if HAS_RUN
    if (n > 1 && PASTE(STEP, _run)(w, p, g, up, n, xi)) return w;
#endif
    w = STEP(w, p, g, up, xi);
    uint4 b = make_uint4(0u, 0u, 0u, 0u);
    for (int pulse = 1; pulse < n; ++pulse) {
        int k = (pulse - 1) & 3;
        if (noisy && k == 0) b = rk_block(key, OP_STEP, cell, sample, (u32)(pulse + 3) >> 2);
        u32 word = k == 0 ? b.x : k == 1 ? b.y : k == 2 ? b.z : b.w;
        w = STEP(w, p, g, up, noisy ? rk_normal(word) : 0.0f);
    }
    return w;
}

// How many pulses one x and one d make; *differ is set where their signs differ.
__device__ __forceinline__ int coincidences(u32 x0, u32 d0, const u32 *x, const u32 *d, int x_stride, int d_stride) {
#if IMPLICIT
    return (int)rintf(fabsf(__uint_as_float(d0) * __uint_as_float(x0)));
#else
    int n = __popc(x0 & d0 & 0x7fffffffu);
    for (int w = 1; w < N_WORD; ++w) n += __popc(x[(u64)w * x_stride] & d[(u64)w * d_stride] & 0x7fffffffu);
    return n;
#endif
}

// Ordered list of the samples of one chunk whose line `row` of d fired, made by one warp.
__device__ __forceinline__ int list_row(int first, int last, int row, int n_out, const u32 *d_train, int *sample, u32 *word) {
    int lane = threadIdx.x & 31, n = 0;
    for (int s0 = first; s0 < last; s0 += 32) {
        int s = s0 + lane;
        u32 w0 = 0u, any = 0u;
        if (s < last && row < n_out) {
            const u32 *d = d_train + (u64)s * N_WORD * n_out + row;
            // A word that fired nothing is zero, and the sign bit of word 0 may be set by a later word.
            for (int w = N_WORD - 1; w >= 0; --w) { w0 = d[(u64)w * n_out]; any |= w0; }
            if (any) w0 |= any & 0x80000000u;
        }
        u32 active = __ballot_sync(0xffffffffu, any != 0u);
        if (any) {
            int at = n + __popc(active & ((1u << lane) - 1u));
            sample[at] = s;
            word[at] = w0;
        }
        n += __popc(active);
    }
    return n;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
pulsed_update(int n_batch, int n_in, int n_out, int flip, int polarity, u64 first_sample, const float *planes, const float *globals,
              const u32 *x_train, const u32 *d_train, float *weight, float *persistent, i64 *n_pulses,
              const int *status, u32 key0, u32 key1) {
    __shared__ int listed_sample[ROWS][CHUNK];
    __shared__ u32 listed_word[ROWS][CHUNK];
    __shared__ int n_listed[ROWS];
    if (*status) return;  // the same for every thread of the launch
    int row0 = blockIdx.y * ROWS, col = (blockIdx.x * THREADS + threadIdx.x) * CELLS;
    bool inside = col < n_in;
    uint2 key = make_uint2(key0, key1);
    u64 n_cell = (u64)n_out * n_in;
    float *stored = WRITE_NOISE ? persistent : weight;
#if N_GLOBAL == 8
    float g[8];
    for (int k = 0; k < 8; ++k) g[k] = globals[k];
#else
    const float *g = globals;
#endif
    u32 pulses = 0u;
    for (int first = 0; first < n_batch; first += CHUNK) {
        int last = min(first + CHUNK, n_batch);
        __syncthreads();
        for (int r = threadIdx.x >> 5; r < ROWS; r += THREADS / 32) {
            int n = list_row(first, last, row0 + r, n_out, d_train, listed_sample[r], listed_word[r]);
            if ((threadIdx.x & 31) == 0) n_listed[r] = n;
        }
        __syncthreads();
        for (int r = 0; r < ROWS; ++r) {
            int n = n_listed[r];
            if (n == 0 || !inside) continue;
            u64 cell = (u64)(row0 + r) * n_in + col;
            float w[CELLS], p[CELLS][N_PLANE];
            LOAD(w, stored + cell);
            for (int k = 0; k < N_PLANE; ++k) {
                float q[CELLS];
                LOAD(q, planes + k * n_cell + cell);
                for (int c = 0; c < CELLS; ++c) p[c][k] = q[c];
            }
            int hit[CELLS];
            for (int c = 0; c < CELLS; ++c) hit[c] = -1;
            for (int a = 0; a < n; ++a) {
                int s = listed_sample[r][a];
                u32 d0 = listed_word[r][a], x0[CELLS];
                const u32 *x = x_train + (u64)s * N_WORD * n_in + col;
                const u32 *d = d_train + (u64)s * N_WORD * n_out + row0 + r;
                LOAD_WORDS(x0, x);
#pragma unroll
                for (int c = 0; c < CELLS; ++c) {
                    int count = coincidences(x0[c], d0, x + c, d, n_in, n_out);
                    if (count == 0) continue;
                    u32 sign = x0[c];
                    for (int v = 1; v < N_WORD; ++v) sign |= x[c + (u64)v * n_in];
                    bool up = (((sign ^ d0) >> 31) ^ (u32)flip) != 0u;
                    if (polarity) {
                        if (up != (polarity > 0)) continue;
                        up = true;
                    }
                    w[c] = run_of_pulses(w[c], p[c], g, up, count, cell + c, first_sample + s, key);
                    pulses += count;
                    hit[c] = s;
                }
            }
            STORE(stored + cell, w);
#if WRITE_NOISE
            for (int c = 0; c < CELLS; ++c)
                if (hit[c] >= 0)
                    weight[cell + c] = __fmaf_rn(g[7], rk_normal(rk_word(key, OP_WRITE_NOISE, cell + c, first_sample + hit[c], 0u)), w[c]);
#endif
        }
    }
    for (int lane = 16; lane; lane >>= 1) pulses += __shfl_xor_sync(0xffffffffu, pulses, lane);
    if ((threadIdx.x & 31) == 0 && pulses) atomicAdd((u64 *)n_pulses, (u64)pulses);
}

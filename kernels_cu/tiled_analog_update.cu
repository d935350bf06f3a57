// A tile of rows: pulsed update, in place.
//
//   ints: rows, columns, samples, words of a train, planes, first row, whether the polarity of pulses is reversed, coding, key;
//   weight (rows, columns), planes (N_PLANE, rows, columns), globals, x_train (samples, words, columns),
//   d_train (samples, words, rows), clock (1)
//
// One thread a cell: samples ascending, in a sample one run of pulses. Draws: as pulsed_update.cu, by the row of the
// whole tile. Macros: STEP, HAS_RUN, N_PLANE, N_GLOBAL, N_WORD (pulse_macros.cuh), IMPLICIT.
// mirror: rpukit/tiled/_mirror/analog.py::tiled_analog_update
// op: rpukit.tiled.runtime.reference.run_tile
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: HAS_RUN=0 STEP=linear_step N_PLANE=6 N_WORD=2
// check: IMPLICIT=2
// source: Gokmen, Vlasov, Front. Neurosci. 10:333 (2016), eq. 2; the models: device_steps.cuh.
#include "pulse_macros.cuh"
#ifndef IMPLICIT
#define IMPLICIT 0
#endif
#define ROWS 1  // lists of samples, which a thread for each cell needs none of
#define CHUNK 1
#define THREADS 256
#include "rk_real.cuh"
#include "pulse_runs.cuh"

extern "C" __global__ void __launch_bounds__(256)
tiled_analog_update(const i64 *ints, const float *floats, float *weight, const float *planes, const float *globals,
                    const u32 *x_train, const u32 *d_train, const i64 *clock) {
    i64 cell = (i64)blockIdx.x * 256 + threadIdx.x, rows = ints[0], n_in = ints[1];
    if (cell >= rows * n_in) return;
    const int row = (int)(cell / n_in), col = (int)(cell % n_in), n_batch = (int)ints[2];
    float p[N_PLANE], w = weight[cell];
    for (int k = 0; k < N_PLANE; ++k) p[k] = planes[k * rows * n_in + cell];
    Update u = {n_batch, (int)n_in, (int)rows, (int)ints[6], 0, (u64)*clock, planes, globals, x_train, nullptr, d_train,
                weight, weight, nullptr, make_uint2((u32)ints[8], (u32)ints[9]), nullptr};
    for (int s = 0; s < n_batch; ++s) {
        u32 d0 = 0u, any = 0u;
        for (int word = N_WORD - 1; word >= 0; --word) {
            d0 = d_train[((i64)s * N_WORD + word) * rows + row];
            any |= d0;
        }
        if (any == 0u) continue;
        d0 |= any & SIGN_BIT;  // a word that fired nothing has no sign
        u32 x0 = x_train[(i64)s * N_WORD * n_in + col];
        int count = coincidences(u, x0, d0, s, row, col);
        if (count == 0) continue;
        uint4 b = rk_block(u.key, OP_STEP, (u64)(ints[5] + row), u.first_sample + s, 0u);
        uint2 key = make_uint2(b.x, b.y);
        float xi = globals[0] != 0.0f ? first_normal(key, col) : 0.0f;
        w = run_of_pulses(w, p, globals, goes_up(u, x0, d0, s, col), count, xi, col, key);
    }
    weight[cell] = w;
}

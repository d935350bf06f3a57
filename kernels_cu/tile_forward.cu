// Product of a tile through its converters, noise and bound test.
//
//   v = clip(rint(x sc / inp_step) inp_step) + noise,  y = sum_j W_ij v_j + noise of reading,
//   y = clip(rint((y + noise) / out_step) out_step),  result y (out_scale alpha rho)
//
//   weight (n_out, n_in), or with TRANSPOSED (n_in, n_out)    float32; n_in is what is summed over
//   x (n_batch, n_in), y (n_batch, n_out)                     float32
//   io (16) float32: 0 inp_bound, 1 inp_step, 2 inp_noise, 3 1 - inp_asymmetry, 4 out_bound, 5 out_step,
//       6 out_noise, 7 1 - out_asymmetry, 8 out_scale, 9 w_noise; flags: 10 inp_sto_round, 11 out_sto_round,
//       12 lower bound counts, 13 scaled, 14 zero output where the scale is not positive, 15 worst case
//   line_noise (n_out) float32, deviation of each output's noise, or null for io[6]
//   work: what passes between the kernels of a product, rk_lines.cuh
//   status (1): not zero: y becomes 0 and nothing else happens
//
// INPUTS 0: v has been made by tile_scale (PERFECT: is x); 1: the block makes it as it goes, HELPERS threads one
// stage ahead of the others; 2: so, and it finds the scales first (MODE 0 to 3 and `threshold` of tile_scale.cu;
// n_batch <= TILE_M), and stores `call` in status where an input is not finite.
// ALL 0: round `round` of the samples that wait for it. With n_peak > 0, which is ceil(n_out / PEAK_N), and n_round
// <= 32: ALL 2 makes the round that is forecast for each sample that met a bound, and tries those before it in the
// blocks beyond the last tile, if more than `round` samples did (of more than 32, which are listed), and
// no more than there are rows; ALL 1 makes all further rounds at once of LOT samples, from number `round` on, whose
// forecast did not come true, and the last block of a sample picks its round (rk_rounds.cuh).
//
// The product is one chain of fma, j ascending (rk_chain.cuh). Grid: (blocks of TILE_N outputs, blocks of TILE_M
// rows: samples, with ALL their rounds, which blocks take in turn with ALL 1); a thread owns RM x RN results; ST
// stages of TILE_K of the sum are in shared memory or on their way (tile_panels.cuh).
// Draws: block r of (IN_OP, line j): word 0 rounding, 1 noise; of (OUT_OP, line i): word 0 reading, 1 noise,
// 2 rounding. Nothing is drawn that is not used.
//
// Macros: TRANSPOSED, PERFECT, W_NOISE (0, 1 constant, 2 PCM), INPUTS, INPUT_DRAWS, OUTPUT_DRAWS (0: they need none),
//         MODE, ALL, IN_OP, OUT_OP, TILE_M, TILE_N, TILE_K, RM, RN, ST, LANES_N (of a warp along the outputs), DEEP
//         (fours of the sum that a thread reads at a time), AHEAD (it reads the next while it multiplies: TILE_K has
//         twice as many), HELPERS (0 exactly for INPUTS 0), LOT, PEAK_N (rk_forecast.cuh),
//         VEC (elements a copy; 4 needs n_in % 4 == n_out % 4 == 0), LONG (0 needs n_in <= RK_SEGMENT).
// mirror: rpukit/analog/_mirror/forward.py::tile_forward
// op: rpukit.analog.product.ops.tile_forward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: INPUTS=2 MODE=2 TILE_M=8 TILE_K=256 RM=1 RN=2 ST=4 DEEP=4 HELPERS=128 VEC=4
// check: INPUTS=2 TRANSPOSED=1 TILE_M=1 TILE_K=256 RM=1 RN=1 ST=4 LANES_N=32 DEEP=4 HELPERS=128 VEC=4 OUTPUT_DRAWS=0
// check: INPUTS=2 TILE_M=8 TILE_N=16 PEAK_N=16 TILE_K=256 RM=1 RN=1 ST=4 DEEP=4 HELPERS=128 VEC=4
// check: INPUTS=1 ALL=1 HELPERS=128 LONG=1 W_NOISE=2
// check: INPUTS=1 ALL=2 HELPERS=128 TILE_K=128 ST=3 VEC=4
// check: INPUTS=1 ALL=2 HELPERS=128 TILE_M=8 TILE_K=128 RM=1 RN=2 ST=4 DEEP=4 VEC=4
// check: INPUTS=1 ALL=2 HELPERS=128 LONG=1 W_NOISE=2
// check: TILE_K=128 ST=4 VEC=4
// check: TILE_M=16 TILE_K=128 RN=2 ST=4 DEEP=2 VEC=4 TRANSPOSED=1
// check: TILE_M=64 TILE_N=64 RM=4 ST=3 VEC=4 INPUTS=1 HELPERS=128
// check: TILE_M=64 TILE_N=128 TILE_K=32 RM=8 RN=8 ST=3 AHEAD=0 VEC=4
// check: PERFECT=1 TILE_N=64 ST=4 VEC=4 TRANSPOSED=1
// source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017); Rasch et al., AICAS 2021.
#ifndef TRANSPOSED
#define TRANSPOSED 0
#endif
#ifndef PERFECT
#define PERFECT 0
#endif
#ifndef W_NOISE
#define W_NOISE 0
#endif
#ifndef INPUTS
#define INPUTS 0
#endif
#ifndef MODE
#define MODE 1
#endif
#ifndef ALL
#define ALL 0
#endif
#ifndef IN_OP
#define IN_OP 1
#endif
#ifndef OUT_OP
#define OUT_OP 2
#endif
#ifndef TILE_M
#define TILE_M 32
#endif
#ifndef TILE_N
#define TILE_N 32
#endif
#ifndef TILE_K
#define TILE_K 64
#endif
#ifndef RM
#define RM 2
#endif
#ifndef RN
#define RN 4
#endif
#ifndef ST
#define ST 5
#endif
#ifndef HELPERS
#define HELPERS 0
#endif
#ifndef INPUT_DRAWS
#define INPUT_DRAWS 1
#endif
#ifndef VEC
#define VEC 1
#endif
#ifndef LONG
#define LONG 0
#endif
#ifndef OUTPUT_DRAWS
#define OUTPUT_DRAWS 1
#endif
#include "rk_chain.cuh"
#include "rk_early.cuh"
#include "tile_panels.cuh"
#include "rk_rounds.cuh"
#include "rk_inputs.cuh"
#define ENDERS (INPUTS == 2 ? WORKERS : THREADS)  // threads of the output stage, that many outputs at a time:
#define TOGETHER (INPUTS == 2 ? RM * RN : TILE_M * TILE_N >= 4 * THREADS ? 4 : 1)

extern "C" __global__ void __launch_bounds__(THREADS, ALL == 2 && THREADS <= 256 && RM * RN < 32 ? 2 : 1)
tile_forward(int n_batch, int n_out, int n_in, int head, int round, int n_round, int n_peak, float threshold, int call, u64 first_sample,
             const float *io, const float *weight, const float *x, const float *line_noise, float *work, float *y, int *status,
             u32 key0, u32 key1) {
    extern __shared__ __align__(16) float stages[];
    __shared__ Rows rows;
    __shared__ Extent extents[INPUTS == 2 ? TILE_M * (WORKERS / 32) : 1];
    __shared__ Choice choice;
    u32 shared = rk_shared_address(stages);
    const int t = threadIdx.x, tiles = (n_out + TILE_N - 1) / TILE_N;
    const uint2 key = make_uint2(key0, key1);
    Work w = parts(work, n_batch, head);
    rk_wait_for_earlier();
    if (ALL) rk_let_later_begin();
    bool halted = INPUTS != 2 && *status != 0;
    if (ALL && halted) return;  // the same for all threads, as below
    for (int row0 = blockIdx.y * TILE_M;; row0 += gridDim.y * TILE_M) {
        int tile = blockIdx.x, n_row = n_batch;
        const int2 own = row_of_block(w, choice, n_batch, n_peak, n_round, round, tiles, row0, io, tile, n_row);
        const int i0 = tile * TILE_N;
        const bool active = own.x >= 0, full = (int)blockIdx.x < tiles;  // else these are trials
        if (t < TILE_M) {
            rows.sample[t] = own.x;
            rows.round[t] = own.y;
            for (int k = 0; k < PEAKS; ++k) rows.met[t * PEAKS + k] = 0;
            if (INPUTS != 2 && active) {
                rows.alpha[t] = scale_of(w.alpha, n_batch, own.x, own.y, io);
                rows.factor[t] = input_factor(rows.alpha[t], reduction(own.y, io), io);
            }
        }
        if (!__syncthreads_or(active)) return;
        const bool made = ALL == 2 && LISTED && full;  // the inputs, by tile_scale
        const float *inputs = made || (INPUTS == 0 && !PERFECT) ? w.body : x;
        int n_step = halted ? 0 : (n_in + TILE_K - 1) / TILE_K;
        const int copier = t - (THREADS - COPIERS);
        auto ask = [&](int at) {
            if (at < n_step && (HELPERS == 0 || copier >= 0)) {
                u32 to = shared + at % ST * STAGE * 4;
                fetch_weights(to + SIZE_X * 4, weight, i0, n_out, at * TILE_K, n_in, copier);
                if (ALL && !made) fetch_rows(to, inputs, rows.sample, at * TILE_K, n_in, copier);
                else fetch<TILE_M, TILE_K, ROW_X>(to, inputs, row0, n_row, at * TILE_K, n_in, copier);
            }
            rk_copies_end();
        };
        for (int at = 0; at < ST - 1; ++at) ask(at);
        const Converter converter = input_converter(io), out_converter = output_converter(io);
        Output o[TOGETHER];
        auto draw = [&](int e0) {
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                int e = min(e0 + u * ENDERS, TILE_M * TILE_N - 1), i = min(i0 + e % TILE_N, n_out - 1);
                o[u].deviation = line_noise ? line_noise[i] : out_converter.noise;
                o[u].line = i;
                o[u].sample = first_sample + max(rows.sample[e / TILE_N], 0);
                o[u].round = rows.round[e / TILE_N];
            }
            if (!PERFECT) draw_lines<TOGETHER, OUTPUT_DRAWS, W_NOISE>(o, OUT_OP, key);
        };
        if (INPUTS == 2) {
            if (t < WORKERS) draw(t);  // while the others request copies
            bool finite = find_scales(rows, extents, n_batch, n_in, x, threshold, io, n_round > 1 ? w.alpha : nullptr);
            if (!finite) atomicCAS(status, 0, call);
            halted = __syncthreads_or(!finite || *(volatile int *)status != 0);
            if (halted) n_step = 0;
        }
        if (INPUTS && !PERFECT && n_step && !made) {
            rk_copies_left<ST - 2>();
            __syncthreads();
            convert_inputs(stages, rows, 0, n_in, converter, first_sample, key, t, THREADS);
        }
        const int2 place = place_of(t);
        Sums sums;
        clear(sums);
#if LONG
        Sums total;
        clear(total);
#endif
        for (int at = 0; at < n_step; ++at) {
            rk_copies_left<ST - 2 - (INPUTS > 0)>();
            __syncthreads();
            ask(at + ST - 1);
            float *next = stages + (at + 1) % ST * STAGE;
            const float *xs = stages + at % ST * STAGE;
            if (HELPERS == 0 || t < WORKERS) multiply(sums, xs, xs + SIZE_X, place, min(TILE_K, n_in - at * TILE_K));
            else if (INPUTS && !PERFECT && !made && at + 1 < n_step)
                convert_inputs(next, rows, (at + 1) * TILE_K, n_in, converter, first_sample, key, t - WORKERS, HELPERS);
#if LONG
            if ((at + 1) * TILE_K % RK_SEGMENT == 0 && at + 1 < n_step) {
                add(total, sums);
                clear(sums);
            }
#endif
        }
#if LONG
        add(total, sums);
        sums = total;
#endif
        rk_copies_left<0>();  // none, but after a halt, whose stages are not used
        __syncthreads();
        if (HELPERS == 0 || t < WORKERS) leave(sums, stages, place);
        __syncthreads();
        for (int e0 = t; t < ENDERS && e0 < TILE_M * TILE_N; e0 += TOGETHER * ENDERS) {
            if (INPUTS != 2) draw(e0);
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                int e = min(e0 + u * ENDERS, TILE_M * TILE_N - 1);
                const float *sum = stages + e / TILE_N * ROW_Y + e % TILE_N;
                o[u].y = *sum;
                o[u].read = W_NOISE ? sum[TILE_M * ROW_Y] : 0.0f;
            }
            if (!PERFECT) output_lines<TOGETHER, OUTPUT_DRAWS, W_NOISE>(o, out_converter, io);
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                int e = e0 + u * ENDERS, m = min(e / TILE_N, TILE_M - 1), i = i0 + e % TILE_N, s = rows.sample[m];
                if (e >= TILE_M * TILE_N || s < 0 || i >= n_out) continue;
                float out = o[u].y, a = rows.alpha[m];
                bool zero = !PERFECT && !(a > 0.0f) && io[14] != 0.0f;
                out *= PERFECT ? io[8] : io[8] * (a > 0.0f ? a : 1.0f) * reduction(rows.round[m], io);
                if (!PERFECT && !halted && !zero && o[u].met) atomicMax(&rows.met[m * PEAKS + e % TILE_N / PEAK_N % PEAKS], __float_as_uint(o[u].size));
                if (halted || zero) out = 0.0f;
                if (ALL == 1) w.body[(u64)(row0 + m) * n_out + i] = out;
                else if (ALL == 2 ? full : !halted || round == 0) y[(u64)s * n_out + i] = out;
            }
        }
        __syncthreads();
        if (ALL == 1) select_rounds(w, choice.open, n_round - 1, n_row, row0, gridDim.x, n_out, rows, y);
        else if (ALL == 2 || round + 1 < n_round) note_bounds(w, n_batch, n_peak, tile, ALL == 0 && round == 0, ALL == 2, rows);
        if (ALL != 1) break;  // the grid has all rows
        __syncthreads();  // row_of_block, too, has barriers before rows are written again
    }
}

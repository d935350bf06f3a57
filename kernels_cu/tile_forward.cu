// One round of the product of a tile through its periphery: converters, noise, bound test.
//
//   v = clip(rint(x sc / inp_step) inp_step) + noise,  y = sum_j W_ij v_j + noise of reading,
//   y = clip(rint((y + noise) / out_step) out_step),  result y (out_scale alpha rho)
//
//   weight (n_out, n_in), or with TRANSPOSED (n_in, n_out)    float32; n_in is what is summed over
//   x (n_batch, n_in), y (n_batch, n_out)                     float32
//   alpha (2, n_batch), need (n_batch)                        from tile_scale
//   io (16) float32: 0 inp_bound, 1 inp_step, 2 inp_noise, 3 1 - inp_asymmetry, 4 out_bound, 5 out_step,
//       6 out_noise, 7 1 - out_asymmetry, 8 out_scale, 9 w_noise; flags: 10 inp_sto_round,
//       11 out_sto_round, 12 lower bound counts, 13 scaled, 14 zero output where the scale is not positive
//   line_noise (n_out) float32, deviation of each output's noise, or null for io[6]
//   status (1): not zero: y becomes 0 and nothing else happens
//
// Round r works on the samples with need >= r and sets need to r + 1 where a bound is met.
// The product is one chain of fma, j ascending (rk_chain.cuh). Grid: (blocks of TILE_N outputs, blocks of
// TILE_M samples); a thread owns RM x RN results; TILE_K of the sum at a time in shared memory.
// Draws: block r of (in_op, line j): word 0 rounding, 1 noise; of (out_op, line i): word 0 reading, 1 noise,
// 2 rounding. Nothing is drawn that is not used.
//
// Macros: TRANSPOSED, PERFECT, W_NOISE (0, 1 constant, 2 PCM), TILE_M, TILE_N, TILE_K, RM, RN,
//         VEC (elements read at a time; 4 needs n_in % 4 == n_out % 4 == 0), LONG (0 needs n_in <= RK_SEGMENT).
// mirror: rpukit/analog/_mirror/forward.py::tile_forward
// op: rpukit.analog.forward.tile_forward
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: TRANSPOSED=1 VEC=4
// check: VEC=4
// check: W_NOISE=1 VEC=4
// check: TILE_M=64 TILE_N=128 TILE_K=16 RM=8 RN=4 VEC=4 LONG=0
// check: TILE_M=16 TILE_N=64 TILE_K=64 RM=2 RN=2 VEC=4 LONG=0
// check: TILE_M=64 TILE_N=128 TILE_K=16 RM=8 RN=4 VEC=4 TRANSPOSED=1 LONG=0
// check: TILE_M=8 TILE_N=32 TILE_K=128 RM=1 RN=1 VEC=4
// check: TILE_M=8 TILE_N=32 TILE_K=128 RM=1 RN=1 TRANSPOSED=1 W_NOISE=2 VEC=4
// check: PERFECT=1
// source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017); Rasch et al., AICAS 2021.
#include "rk_philox.cuh"
#include "rk_chain.cuh"
#include "rk_periphery.cuh"
#include "rk_tile.cuh"

#ifndef TRANSPOSED
#define TRANSPOSED 0
#endif
#ifndef PERFECT
#define PERFECT 0
#endif
#ifndef W_NOISE
#define W_NOISE 0
#endif
#ifndef TILE_M
#define TILE_M 32
#endif
#ifndef TILE_N
#define TILE_N 32
#endif
#ifndef TILE_K
#define TILE_K 32
#endif
#ifndef RM
#define RM 2
#endif
#ifndef RN
#define RN 2
#endif
#ifndef LONG
#define LONG 1
#endif
#ifndef VEC
#define VEC 1
#endif
#define THREADS ((TILE_M / RM) * (TILE_N / RN))
#define W_LINES (TRANSPOSED ? TILE_K : TILE_N)
#define W_DEPTH (TRANSPOSED ? TILE_N : TILE_K)
#define W_PAD (RN < 4 ? RN : 4)  // as little as lets a thread read its RN elements at once
#define X_PAD (RM < 4 ? RM : 4)
#define W_UNITS (TILE_K * TILE_N / VEC / THREADS)
#define X_UNITS (TILE_K * TILE_M / VEC / THREADS)

// Noise, conversion and bound test of one output; *met is set where the bound counts and is passed.
__device__ __forceinline__ float output_line(float y, float read, float deviation, const float *io, u32 op, u64 line, u64 sample,
                                             u32 round, uint2 key, bool *met) {
    bool rounds = io[11] != 0.0f && io[5] > 0.0f, noisy = deviation > 0.0f, reads = W_NOISE && io[9] > 0.0f;
    uint4 b = rounds || noisy || reads ? rk_block(key, op, line, sample, round) : make_uint4(0u, 0u, 0u, 0u);
    if (reads) y = __fmaf_rn(io[9] * __fsqrt_rn(read), rk_normal(b.x), y);
    if (y < 0.0f) y *= io[7];
    if (noisy) y = __fmaf_rn(deviation, rk_normal(b.y), y);
    y = convert(y, io[5], rounds, b.z);
    float bound = io[4];
    if (bound > 0.0f && (y > bound || (y < -bound && io[12] != 0.0f))) *met = true;
    return clip(y, bound);
}

__device__ __forceinline__ void read_tiles(float (&wr)[W_UNITS][VEC], float (&xr)[X_UNITS][VEC], const float *weight, const float *x,
                                           int n_batch, int n_out, int n_in, int s0, int i0, int k0) {
    rk_read_tile<W_LINES, W_DEPTH, VEC, THREADS>(wr, weight, TRANSPOSED ? n_in : n_out, TRANSPOSED ? n_out : n_in,
                                                 TRANSPOSED ? k0 : i0, TRANSPOSED ? i0 : k0);
    rk_read_tile<TILE_M, TILE_K, VEC, THREADS>(xr, x, n_batch, n_in, s0, k0);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
tile_forward(int n_batch, int n_out, int n_in, int round, float rho, int worst, u64 first_sample, u32 in_op, u32 out_op,
             const float *io, const float *weight, const float *x, const float *alpha, const float *line_noise, int *need,
             float *y, const int *status, u32 key0, u32 key1) {
    __shared__ __align__(16) float ws[TILE_K][TILE_N + W_PAD], xs[TILE_K][TILE_M + X_PAD];
    __shared__ float scales[TILE_M];
    int s0 = blockIdx.y * TILE_M, i0 = blockIdx.x * TILE_N, t = threadIdx.x;
    int tn = t % (TILE_N / RN), tm = t / (TILE_N / RN);
    bool halted = *status != 0;
    int n_active = 0;
    for (int m = 0; m < TILE_M && s0 + m < n_batch; ++m) n_active += need[s0 + m] >= round;
    if (n_active == 0 && !halted) return;  // the same for every thread of a block: need only grows past round
    if (halted) {
        if (round == 0)
            for (int e = t; e < TILE_M * TILE_N; e += THREADS) {
                int s = s0 + e / TILE_N, i = i0 + e % TILE_N;
                if (s < n_batch && i < n_out) y[(u64)s * n_out + i] = 0.0f;
            }
        return;
    }
    const float *scale = alpha + (worst ? n_batch : 0);
    uint2 key = make_uint2(key0, key1);
    for (int m = t; m < TILE_M; m += THREADS)
        scales[m] = s0 + m < n_batch && io[13] != 0.0f ? inverse(scale[s0 + m], rho) : 1.0f / rho;
    float acc[RM][RN], read[RM][RN];
#if LONG
    float total[RM][RN], read_total[RM][RN];
#endif
    for (int r = 0; r < RM; ++r)
        for (int c = 0; c < RN; ++c) {
            acc[r][c] = read[r][c] = 0.0f;
#if LONG
            total[r][c] = read_total[r][c] = 0.0f;
#endif
        }
    float wr[W_UNITS][VEC], xr[X_UNITS][VEC];
    read_tiles(wr, xr, weight, x, n_batch, n_out, n_in, s0, i0, 0);
    for (int k0 = 0; k0 < n_in; k0 += TILE_K) {
        __syncthreads();
        for (int u = 0; u < W_UNITS; ++u)
            for (int q = 0; q < VEC; ++q) {
                int e = t + u * THREADS;
                int line = rk_unit_line<W_LINES, W_DEPTH, VEC>(e), at = rk_unit_depth<W_LINES, W_DEPTH, VEC>(e) + q;
                ws[TRANSPOSED ? line : at][TRANSPOSED ? at : line] = wr[u][q];
            }
        for (int u = 0; u < X_UNITS; ++u)
            for (int q = 0; q < VEC; ++q) {
                int e = t + u * THREADS;
                int m = rk_unit_line<TILE_M, TILE_K, VEC>(e), k = rk_unit_depth<TILE_M, TILE_K, VEC>(e) + q;
                float v = xr[u][q];
                if (!PERFECT && k0 + k < n_in && s0 + m < n_batch)
                    v = input_line(v, scales[m], io, in_op, k0 + k, first_sample + s0 + m, round, key);
                xs[k][m] = v;
            }
        __syncthreads();
        if (k0 + TILE_K < n_in) read_tiles(wr, xr, weight, x, n_batch, n_out, n_in, s0, i0, k0 + TILE_K);
        int last = min(TILE_K, n_in - k0);
        if (s0 + tm * RM < n_batch) {
#pragma unroll 8
            for (int k = 0; k < last; ++k) {
                float w[RN], v[RM];
                for (int c = 0; c < RN; ++c) w[c] = ws[k][tn * RN + c];
                for (int r = 0; r < RM; ++r) v[r] = xs[k][tm * RM + r];
                for (int r = 0; r < RM; ++r)
                    for (int c = 0; c < RN; ++c) {
                        acc[r][c] = __fmaf_rn(w[c], v[r], acc[r][c]);
                        if (W_NOISE == 1) read[r][c] = __fmaf_rn(v[r], v[r], read[r][c]);
                        if (W_NOISE == 2) read[r][c] = __fmaf_rn(fabsf(w[c]), v[r] * v[r], read[r][c]);
                    }
            }
        }
#if LONG
        if ((k0 + TILE_K) % RK_SEGMENT == 0 && k0 + TILE_K < n_in)
            for (int r = 0; r < RM; ++r)
                for (int c = 0; c < RN; ++c) {
                    total[r][c] += acc[r][c];
                    read_total[r][c] += read[r][c];
                    acc[r][c] = read[r][c] = 0.0f;
                }
#endif
    }
    for (int r = 0; r < RM; ++r)
        for (int c = 0; c < RN; ++c) {
            int s = s0 + tm * RM + r, i = i0 + tn * RN + c;
            if (s >= n_batch || i >= n_out || need[s] < round) continue;
            float out = acc[r][c], noise = read[r][c];
#if LONG
            out = total[r][c] + out;
            noise = read_total[r][c] + noise;
#endif
            if (PERFECT) {
                out *= io[8];
            } else {
                float a = io[13] != 0.0f ? scale[s] : 1.0f;
                bool met = false;
                out = output_line(out, noise, line_noise ? line_noise[i] : io[6], io, out_op, i, first_sample + s, round, key, &met);
                out *= io[8] * (a > 0.0f ? a : 1.0f) * rho;
                if (!(a > 0.0f) && io[14] != 0.0f) {
                    out = 0.0f;
                    met = false;
                }
                if (met) atomicMax(&need[s], round + 1);
            }
            y[(u64)s * n_out + i] = out;
        }
}

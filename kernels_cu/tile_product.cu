// Whole product of a float64 tile in one plain kernel: noise management, rounds of bound management, wires
// and converters. Plain, not fast; float instances give the bits of the kernels of float32.
//
// A block takes a sample through all that tile_scale.cu, tile_forward.cu and tile_nonideal.cu say, where the
// formulas are: the scale, then rounds until no output meets a bound that counts.
//
//   weight (n_out, n_in), or with TRANSPOSED (n_in, n_out)   REAL; n_in is what is summed over
//   x (n_batch, n_in), y (n_batch, n_out)                    REAL
//   rhos (n_round)                                           REAL, reduction of the inputs in each round
//   io (16), io_more (8)                                     REAL, tile_forward.cu and tile_nonideal.cu
//   factor (as weight), line_noise, offset, slope (n_out)    REAL, tile_nonideal.cu; may be null
//   v (n_batch, n_in)                                        REAL, scratch: the converted inputs
//   average (1)                                              REAL, tile_scale.cu
//   status (1)                                               not zero: y becomes 0 and nothing else happens
//
// Grid: up to n_batch blocks, which take samples in turn; with MODE 4 one block, samples in order. A thread
// owns every THREADS-th output. Sums: rk_chain.cuh. Draws: tile_forward.cu, tile_nonideal.cu.
// Macros: REAL, TRANSPOSED, PERFECT, MODE, WORST (tile_scale.cu), PASSES, IR_DROP, OFFSET, SATURATES, W_NOISE.
// mirror: rpukit/analog/_mirror/product.py::tile_product
// op: rpukit.analog.product.float64.tile_product
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: REAL=double PERFECT=1
// check: REAL=double MODE=5 WORST=1 PASSES=3 IR_DROP=1 OFFSET=1 SATURATES=1 W_NOISE=2
// source: Gokmen, Onen, Haensch, Front. Neurosci. 11:538 (2017); Rasch et al., AICAS 2021.
#include "pass_macros.cuh"
#ifndef PERFECT
#define PERFECT 0
#endif
#ifndef MODE
#define MODE 1
#endif
#ifndef WORST
#define WORST 0
#endif
#define THREADS 256
#define N_PASS (PASSES > 1 ? 2 : 1)
#include "rk_chain.cuh"
#include "rk_wires.cuh"

struct Lines {
    int n_batch, n_out, n_in;
    u32 out_op;
    uint2 key;
    const REAL *io, *more, *weight, *factor, *noise, *offset, *slope;
};

// The scale of mode 5, whose sums are chains.
__device__ __forceinline__ REAL np_sum(int n, const REAL *x, REAL a, REAL step, REAL max_bm_res, REAL bound) {
    REAL positive = 0.0f, negative = 0.0f;
    for (int i = 0; i < n; ++i) {
        if (x[i] > 0.0f) positive += x[i];
        if (x[i] < 0.0f) negative += x[i];
    }
    REAL s = rk_max(positive, -negative) * (REAL)0.6 / bound;
    if (step > 0.0f) s = rk_min(a / step * max_bm_res, s);
    return rk_max(a, s);
}

__device__ __forceinline__ REAL block_max(REAL v, REAL *shared) {
    __syncthreads();
    shared[threadIdx.x] = v;
    __syncthreads();
    for (int t = 0; t < THREADS; ++t) v = rk_max(v, shared[t]);
    return v;
}

// The sums of output i, of the inputs of one sign where there are two passes.
__device__ __forceinline__ void make_sums(const Lines &l, const REAL *v, int i, int pass, Sums<REAL> &s) {
    REAL n = (REAL)l.n_in;
    for (int k = 0; k < N_SUM; ++k) s.part[k] = s.total[k] = 0.0f;
    for (int j = 0; j < l.n_in; ++j) {
        u64 at = TRANSPOSED ? (u64)j * l.n_out + i : (u64)i * l.n_in + j;
        REAL w = l.weight[at], c = v[j], p = (REAL)1 - (REAL)j / n, g = rk_fma(-p, p, (REAL)1);
        if (PASSES > 1 && pass == 0 && l.factor) w = w * l.factor[at];
        if (PASSES > 1) c = pass == 0 ? rk_min(c, (REAL)0) : rk_max(c, (REAL)0);
        add(s, w, c, g);
        if ((j + 1) % RK_SEGMENT == 0 && j + 1 < l.n_in)
            for (int k = 0; k < N_SUM; ++k) {
                s.total[k] += s.part[k];
                s.part[k] = 0.0f;
            }
    }
    for (int k = 0; k < N_SUM; ++k) s.total[k] += s.part[k];
}

// One converted output, not scaled; *met is set where a bound that counts was passed.
__device__ __forceinline__ REAL output(const Lines &l, const REAL *v, int i, u64 sample, u32 round, bool *met) {
    REAL out = 0.0f, o = l.offset ? l.offset[i] : (REAL)0, sat = l.slope ? l.slope[i] : (REAL)0;
    REAL deviation = l.noise ? l.noise[i] : l.io[6];
    for (int p = 0; p < N_PASS; ++p) {
        Sums<REAL> s;
        make_sums(l, v, i, p, s);
        uint4 b = rk_block(l.key, l.out_op, i, sample, round + 64 * p);
        REAL part = through_wires(s.total, (REAL)l.n_in, o, l.more, l.io[9], b.x);
        if (PASSES == 3) part = out_stage(part, sat, deviation, l.io, l.more, b, met);
        out += part;
    }
    uint4 b = rk_block(l.key, l.out_op, i, sample, round);
    return PASSES == 3 ? out : out_stage(out, sat, deviation, l.io, l.more, b, met);
}

// Left to itself the assembler spills registers of plain doubles to fit a fifth block.
#define BLOCKS (sizeof(REAL) == 8 && !PERFECT && PASSES == 1 ? 4 : 0)
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
tile_product(int n_batch, int n_out, int n_in, int n_round, REAL threshold, REAL step, REAL max_bm_res, REAL bound,
             u64 first_sample, u32 in_op, u32 out_op, const REAL *rhos, const REAL *io, const REAL *io_more,
             const REAL *weight, const REAL *factor, const REAL *x, const REAL *line_noise, const REAL *offset,
             const REAL *slope, REAL *v, REAL *average, REAL *y, const int *status, u32 key0, u32 key1) {
    __shared__ REAL shared[THREADS], scales[2];
    Lines l = {n_batch, n_out, n_in, out_op, make_uint2(key0, key1), io, io_more, weight, factor, line_noise, offset, slope};
    bool halted = *status != 0;  // the same for every thread of the launch
    REAL mean = MODE == 4 ? *average : (REAL)0;
    for (int s = blockIdx.x; s < n_batch; s += gridDim.x) {
        const REAL *row = x + (u64)s * n_in;
        REAL *own = v + (u64)s * n_in, *result = y + (u64)s * n_out;
        u64 sample = first_sample + s;
        REAL largest = 0.0f, top = n_in ? row[0] : (REAL)0;
        for (int j = threadIdx.x; j < n_in; j += THREADS) {
            largest = rk_max(largest, rk_abs(row[j]));
            top = rk_max(top, row[j]);
        }
        largest = block_max(largest, shared);
        top = block_max(top, shared);
        REAL limited = threshold > 0.0f ? rk_min(largest, threshold) : largest;
        if (threadIdx.x == 0) {
            REAL a = MODE == 1 ? limited : (REAL)1;
            if (MODE == 2) a = threshold > 0.0f ? rk_min(top, threshold) : top;
            if (MODE == 3) a = threshold > 0.0f ? threshold : (REAL)1;
            if (MODE == 4) a = mean < 0.0f ? largest : rk_fma((REAL)0.001, largest, mean * (REAL)0.999);
            if (MODE == 5) a = np_sum(n_in, row, limited, step, max_bm_res, bound);
            scales[0] = a;
            scales[1] = WORST ? np_sum(n_in, row, limited, step, max_bm_res, bound) : a;
        }
        __syncthreads();
        if (MODE == 4) mean = scales[0];
        bool again = true;
        for (int round = 0; again && round < n_round; ++round) {
            REAL a = io[13] != 0.0f ? scales[WORST && round ? 1 : 0] : (REAL)1, rho = rhos[round];
            REAL sc = io[13] != 0.0f ? inverse(a, rho) : (REAL)1 / rho;
            REAL back = io[8] * (a > 0.0f ? a : (REAL)1) * rho;
            bool nothing = halted || (!PERFECT && !(a > 0.0f) && io[14] != 0.0f), met = false;
            for (int j = threadIdx.x; j < n_in; j += THREADS)
                own[j] = PERFECT ? row[j] : input_line(row[j], sc, io, in_op, j, sample, round, l.key);
            __syncthreads();
            for (int i = threadIdx.x; i < n_out; i += THREADS) {
                if (PERFECT) {
                    Sums<REAL> sums;
                    make_sums(l, own, i, 0, sums);
                    result[i] = nothing ? (REAL)0 : sums.total[0] * io[8];
                } else {
                    REAL out = nothing ? (REAL)0 : output(l, own, i, sample, round, &met);
                    result[i] = nothing ? (REAL)0 : out * back;
                }
            }
            again = __syncthreads_or(met) != 0;
        }
    }
    if (MODE == 4 && !halted && threadIdx.x == 0) *average = mean;
}

// Encode the lines of a batch as pulse trains.
//
// Each sample gets a bit length BL and two scales A (for d) and B (for x) from lr, the granularity g
// and, with management, from the largest |x| and |d|; then each slot of a line fires where
// |v| * scale > U. With IMPLICIT the train is a number, and d carries BL: 1: q = clip(|v| * scale, 0, 1);
// 2: n = clip(rint(BL |v| * scale), 0, BL).
//
//   x (n_batch, n_in), d (n_batch, n_out)            REAL
//   rates (n_batch)                                  REAL, lr of each sample, or null
//   x_train (n_batch, n_word, n_in), d_train (n_batch, n_word, n_out)   uint32
//       word w holds slots 31 w .. 31 w + 30 in bits 0..30 and the sign (1 = negative) in bit 31;
//       IMPLICIT 1: the bits of +-q_x as a float, or +-(BL q_d); 2: n, BL of d from bit 13 on, the sign in bit 31
//   x_slices (n_batch, ceil(n_in / 32), 32)          uint32, or null; needs n_word = 1
//       the same trains of x by slots: bit j of word k of block b is slot k of line 32 b + j, of word 31 its sign
//   status (1): a non-finite input stores `call` there, and the kernels after this one do nothing
//
// Grid: (n_batch, blocks, which take THREADS lines in turn: those of x, filled up to a multiple of 32, then
// those of d). Each block computes the maxima of its sample itself (a maximum has no order). Draws: op 5 (x) or 6 (d), index = line, draw = slot; stochastic
// rounding of the probability: draw 65532.
//
// Macros: REAL, THREADS, IMPLICIT (0, 1, 2).
// mirror: rpukit/analog/_mirror/update.py::pulse_trains
// op: rpukit.analog.update.ops.pulse_trains
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: THREADS=64
// check: IMPLICIT=1
// check: IMPLICIT=2
// check: REAL=double
// check: REAL=double IMPLICIT=1
// source: Gokmen, Vlasov, Front. Neurosci. 10:333 (2016); update management: Gokmen et al. 11:538 (2017).
#include "pulse_slots.cuh"
#include "rk_bits.cuh"

#ifndef THREADS
#define THREADS 256
#endif
#ifndef IMPLICIT
#define IMPLICIT 0
#endif

__device__ __forceinline__ REAL block_max(REAL v, REAL *shared) {
    for (int lane = 16; lane; lane >>= 1) v = rk_max(v, __shfl_xor_sync(0xffffffffu, v, lane));
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    v = shared[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) v = rk_max(v, shared[warp]);
    __syncthreads();
    return v;
}

extern "C" __global__ void __launch_bounds__(THREADS)
pulse_trains(int n_batch, int n_in, int n_out, int n_word, REAL lr, REAL granularity, int base_length,
             int unit_scale, int managed, int managed_length, REAL grad_scale, REAL x_res, REAL d_res,
             int stochastic_rounding, u64 first_sample, int call, const REAL *x, const REAL *d,
             const REAL *rates, u32 *x_train, u32 *d_train, u32 *x_slices, int *status, u32 key0, u32 key1) {
    __shared__ REAL warp_max[THREADS / 32];
    int row = blockIdx.x;
    const REAL *xs = x + (u64)row * n_in, *ds = d + (u64)row * n_out;
    REAL x_max = 0.0f, d_max = 0.0f;
    bool finite = true;
    for (int i = threadIdx.x; i < n_in; i += THREADS) {
        REAL v = rk_abs(xs[i]);
        finite = finite && v <= rk_largest(v);
        x_max = rk_max(x_max, v);
    }
    for (int i = threadIdx.x; i < n_out; i += THREADS) {
        REAL v = rk_abs(ds[i]);
        finite = finite && v <= rk_largest(v);
        d_max = rk_max(d_max, v);
    }
    if (!finite) atomicCAS(status, 0, call);
    x_max = block_max(x_max, warp_max);
    d_max = block_max(d_max, warp_max);

    Scales scales = scales_of(rates ? rates[row] : lr, granularity, base_length, unit_scale, managed, managed_length,
                              grad_scale, x_max, d_max);
    int n_block = (n_in + 31) / 32, n_line = 32 * n_block + (n_out + 31) / 32 * 32;
    u64 sample = first_sample + row;
    uint2 key = make_uint2(key0, key1);
    for (int at = blockIdx.y * THREADS + threadIdx.x; at < n_line; at += gridDim.y * THREADS) {  // whole warps
        bool is_x = at < 32 * n_block;
        int line = is_x ? at : at - 32 * n_block, stride = is_x ? n_in : n_out;
        bool inside = line < stride;
        REAL v = inside ? (is_x ? xs[line] : ds[line]) : 0.0f;
        u32 op = is_x ? OP_X : OP_D;
        REAL p = rounded(rk_abs(v) * (is_x ? scales.of_x : scales.of_d), is_x ? x_res : d_res, stochastic_rounding, key, op, line, sample);
        u32 *train = (is_x ? x_train : d_train) + (u64)row * n_word * stride + line;
#if IMPLICIT
        if (inside) train[0] = implicit_train<IMPLICIT>(p, v < 0.0f, scales.length, !is_x);
#else
        for (int w = 0; w < n_word; ++w) {
            u32 word = slots(p, v < 0.0f, w * SLOTS, min(w * SLOTS + SLOTS, scales.length), ~0u, key, op, line, sample);
            if (inside) train[(u64)w * stride] = word;
            if (x_slices && is_x) x_slices[((u64)row * n_block + line / 32) * 32 + (at & 31)] = rk_transpose_bits(word);
        }
#endif
    }
}

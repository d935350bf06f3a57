// Prepare scaled factors for the accumulation of weight counts: exp(lift + value) = exp(lift - s) exp(value + s).
// One step is a pair (sample, use of weights) of sum_flow.
//
//   s = largest lift of the use's nodes; rounded up to REAL; if that plus the largest child is above 60, `wide` is 1 and the
//   exponents stay as they are (of double without s)
//
//   use_row, use_size, use_count, use_width int, use_child, use_base, use_x i64 (n_use): first row and number of nodes;
//   children children[use_child] and so on, elements of a layer of use_width with use_base before it; columns of `child`
//   WIDTH: elements are made of their rows, child_rows (children, WIDTH), -1 for none, in values (n_sample, n_row) double, and
//   lifts of values and flows
//   use_up (n_use) int: columns of `up`
//   SPLIT: up and child are words of 16 bits, the high ones of a sample, then its low ones: of a wide step the halves of the
//   exponents' bits, else pairs of bfloat16
//   LIFTED: with WIDTH, of float; `up` and the largest lifts, top (n_sample, n_use) float, are there from tensor_stage.cu; what
//   wide steps have instead is put here
//   lift (n_sample, n_row) double, up (n_sample, n_up), child (n_sample, n_x) REAL; elements: each layer's (n_sample, use_width), one after the
//   other, double; wide (n_sample, n_use) int
//
// Grid: (n_use, samples / FEW or less), N_THREAD threads. A thread keeps HELD lifts and children of a sample in registers; of larger uses the
// others are read again. A maximum has no order.
// Macros: REAL, WIDTH, FEW, N_THREAD, HELD, SPLIT, LIFTED, WORD (the type of up and child: u16 with SPLIT, else REAL).
// mirror: rpukit/circuits/_mirror/learning.py::flow_steps
// op: rpukit.circuits.ops.counts.flow_steps
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double WORD=double
// check: WIDTH=2
// check: WIDTH=2 FEW=2
// check: WIDTH=2 FEW=2 HELD=2
// check: WIDTH=2 HELD=4 N_THREAD=256 SPLIT=1 WORD=u16
// check: WIDTH=2 HELD=4 N_THREAD=256 SPLIT=1 WORD=u16 LIFTED=1
// check: WIDTH=2 FEW=2 LIFTED=1
// source: docs/semantics/circuits.md, sections 3 and 6.
#include "circuit_rows.cuh"
#include "circuit_split.cuh"

#ifndef WORD  // REAL, or u16 with SPLIT
#define WORD float
#endif

#ifndef N_THREAD
#define N_THREAD 128
#endif
#define THREADS N_THREAD
#ifndef HELD
#define HELD 1
#endif
#ifndef LIFTED
#define LIFTED 0
#endif
#define WIDE ((REAL)60)

// Put a number, or the bits of an exponent; `plane` words are between its two parts.
__device__ __forceinline__ void put_word(u16 *to, i64 plane, float v, bool bits) {
    u32 pair = bits ? __float_as_uint(v) >> 16 : rk_pack16(v, 0.0f);
    to[0] = (u16)pair;
    to[plane] = (u16)(bits ? __float_as_uint(v) : rk_pack_rest(pair, v, 0.0f));
}
__device__ __forceinline__ void put_word(REAL *to, i64, REAL v, bool) { *to = v; }

struct Largest { REAL lift[FEW], child[FEW]; };

// The largest of all threads' numbers.
__device__ __forceinline__ void share(Largest &m, Largest *found) {
#pragma unroll
    for (int f = 0; f < FEW; ++f)
#pragma unroll
        for (int x = 16; x; x /= 2) {
            m.lift[f] = rk_max(m.lift[f], __shfl_xor_sync(~0u, m.lift[f], x));
            m.child[f] = rk_max(m.child[f], __shfl_xor_sync(~0u, m.child[f], x));
        }
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = m;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; ++w)
#pragma unroll
        for (int f = 0; f < FEW; ++f)
            m.lift[f] = rk_max(m.lift[f], found[w].lift[f]), m.child[f] = rk_max(m.child[f], found[w].child[f]);
    __syncthreads();  // before `found` is written again
}

extern "C" __global__ void __launch_bounds__(THREADS)
flow_steps(int n_sample, int n_use, int n_row, i64 n_up, i64 n_x, const int *use_row, const int *use_up, const int *use_size, const i64 *use_child,
           const int *use_count, const i64 *use_base, const int *use_width, const i64 *use_x, const int *children,
           const int *child_rows, const double *values, const REAL *flows, const double *lift, const double *elements, const float *top,
           WORD *up, WORD *child, int *wide) {
    __shared__ Largest found[THREADS / 32];
    int u = blockIdx.x, size = use_size[u], count = use_count[u], row = use_row[u], own = threadIdx.x;
    i64 first = use_child[u], x = use_x[u];
    const double *from = WIDTH ? values : elements + (u64)n_sample * use_base[u];
    int width = WIDTH ? n_row : use_width[u];
    wait_for_earlier();
    auto above = [&](int b, int m) {
        u64 at = (u64)b * n_row + row + m;
        return WIDTH ? lift_of(values[at], flows[at]) : lift[at];
    };
    auto below = [&](int b, int c) {
        const double *line = from + (u64)b * width;
        return WIDTH ? product_of(child_rows + (first + c) * WIDTH, line) : line[children[first + c]];
    };
    FEW_SAMPLES(b0, n_sample) {
        int line[FEW];
        Largest m;
        double own_lift[HELD][FEW], own_child[HELD][FEW];  // the first pieces, which are used twice
#pragma unroll
        for (int f = 0; f < FEW; ++f) {
            line[f] = min(b0 + f, n_sample - 1), m.child[f] = NOTHING;
            m.lift[f] = LIFTED ? (REAL)top[(u64)line[f] * n_use + u] : NOTHING;
        }
#pragma unroll
        for (int h = 0; h < HELD; ++h) {
            int k = own + h * THREADS;
#pragma unroll
            for (int f = 0; f < FEW; ++f) {
                own_lift[h][f] = !LIFTED && k < size ? above(line[f], k) : IMPOSSIBLE;
                own_child[h][f] = k < count ? below(line[f], k) : IMPOSSIBLE;
            }
        }
#pragma unroll
        for (int z = 0; z < HELD * FEW; ++z) {
            int f = z % FEW;
            m.lift[f] = rk_max(m.lift[f], reference_of(own_lift[z / FEW][f]));
            m.child[f] = rk_max(m.child[f], reference_of(own_child[z / FEW][f]));
        }
#pragma unroll 1
        for (int k = own + HELD * THREADS; !LIFTED && k < size; k += THREADS)
#pragma unroll
            for (int f = 0; f < FEW; ++f) m.lift[f] = rk_max(m.lift[f], reference_of(above(line[f], k)));
#pragma unroll 1
        for (int k = own + HELD * THREADS; k < count; k += THREADS)
#pragma unroll
            for (int f = 0; f < FEW; ++f) m.child[f] = rk_max(m.child[f], reference_of(below(line[f], k)));
        share(m, found);
#pragma unroll
        for (int f = 0; f < FEW; ++f) {
            int b = b0 + f;
            if (b >= n_sample) break;
            REAL s = m.lift[f];
            bool some = s > NOTHING, far = some && (double)m.child[f] + (double)s > WIDE;
            double shift = far && sizeof(REAL) == 8 ? 0.0 : (double)s;
            if (own == 0) wide[(u64)b * n_use + u] = far;
            auto put = [&](WORD *to, i64 plane, double v) { put_word(to, plane, far ? (REAL)v : some ? exp_below((REAL)v) : (REAL)0, far); };  // no more than WIDE
            WORD *up_line = up + (SPLIT + 1) * b * n_up + use_up[u], *child_line = child + (SPLIT + 1) * b * n_x + x;
#pragma unroll
            for (int h = 0; h < HELD; ++h) {
                int k = own + h * THREADS;
                if (!LIFTED && k < size) put(up_line + k, n_up, own_lift[h][f] - shift);
                if (k < count) put(child_line + k, n_x, own_child[h][f] + shift);
            }
#pragma unroll 1
            for (int k = LIFTED ? far ? own : size : own + HELD * THREADS; k < size; k += THREADS) put(up_line + k, n_up, above(b, k) - shift);
#pragma unroll 1
            for (int k = own + HELD * THREADS; k < count; k += THREADS) put(child_line + k, n_x, below(b, k) + shift);
        }
    }
}

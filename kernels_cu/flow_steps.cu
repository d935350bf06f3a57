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
//   lift (n_sample, n_row) double, up (n_sample, n_up), child (n_sample, n_x) REAL; elements: each layer's (n_sample, use_width), one after the
//   other, double; wide (n_sample, n_use) int
//
// Grid: (n_use, samples / FEW or less), 128 threads. A maximum has no order.
// Macros: REAL, WIDTH, FEW.
// mirror: rpukit/circuits/_mirror/learning.py::flow_steps
// op: rpukit.circuits.ops.layers.flow_steps
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: WIDTH=2
// check: WIDTH=2 FEW=4
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"

#define THREADS 128
#define WIDE ((REAL)60)

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
flow_steps(int n_sample, int n_use, int n_row, int n_up, i64 n_x, const int *use_row, const int *use_size, const i64 *use_child,
           const int *use_count, const i64 *use_base, const int *use_width, const i64 *use_x, const int *children,
           const int *child_rows, const double *values, const REAL *flows, const double *lift, const double *elements, REAL *up,
           REAL *child, int *wide) {
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
        double own_lift[FEW], own_child[FEW];  // the first pieces, which are used twice
#pragma unroll
        for (int f = 0; f < FEW; ++f) {
            line[f] = min(b0 + f, n_sample - 1);
            own_lift[f] = own < size ? above(line[f], own) : IMPOSSIBLE;
            own_child[f] = own < count ? below(line[f], own) : IMPOSSIBLE;
            m.lift[f] = reference_of(own_lift[f]), m.child[f] = reference_of(own_child[f]);
        }
#pragma unroll 1
        for (int k = own + THREADS; k < size; k += THREADS)
#pragma unroll
            for (int f = 0; f < FEW; ++f) m.lift[f] = rk_max(m.lift[f], reference_of(above(line[f], k)));
#pragma unroll 1
        for (int k = own + THREADS; k < count; k += THREADS)
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
            auto put = [&](REAL *to, double v) { *to = far ? (REAL)v : some ? rk_exp((REAL)v) : (REAL)0; };
            REAL *up_line = up + (u64)b * n_up + row, *child_line = child + (u64)b * n_x + x;
            if (own < size) put(up_line + own, own_lift[f] - shift);
            if (own < count) put(child_line + own, own_child[f] + shift);
#pragma unroll 1
            for (int k = own + THREADS; k < size; k += THREADS) put(up_line + k, above(b, k) - shift);
#pragma unroll 1
            for (int k = own + THREADS; k < count; k += THREADS) put(child_line + k, below(b, k) + shift);
        }
    }
}

// Prepare the steps (sample, use of weights) of sum_flow: exp(lift + value) as exp(lift - s) exp(value + s).
//
//   s = largest lift of the use's nodes; if that plus the largest child is above 60, `wide` is 1 and both stay as they are
//
//   use_row, use_size, use_count, use_width int, use_child, use_base, use_x i64 (n_use): first row and number of nodes;
//   children children[use_child] and so on, elements of a layer of use_width with use_base before it; columns of `child`
//   WIDTH: elements are made of their rows, child_rows (children, WIDTH), -1 for none, in values (n_sample, n_row), and
//   lifts of values and flows
//   lift (n_sample, n_row), up (n_sample, n_up), child (n_sample, n_x) REAL; elements: each layer's (n_sample, use_width), one after the
//   other; wide (n_sample, n_use) int
//
// Grid: (n_use, samples), 128 threads. A maximum has no order.
// Macros: REAL, WIDTH.
// mirror: rpukit/circuits/_mirror/learning.py::flow_steps
// op: rpukit.circuits.ops.flow_steps
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: WIDTH=2
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"

#define THREADS 128
#define WIDE ((REAL)60)

// The largest of all threads' m.
__device__ __forceinline__ REAL largest_of(REAL m, REAL *found) {
#pragma unroll
    for (int x = 16; x; x /= 2) m = rk_max(m, __shfl_xor_sync(~0u, m, x));
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = m;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; ++w) m = rk_max(m, found[w]);
    return m;
}

extern "C" __global__ void __launch_bounds__(THREADS)
flow_steps(int n_sample, int n_use, int n_row, int n_up, i64 n_x, const int *use_row, const int *use_size, const i64 *use_child,
           const int *use_count, const i64 *use_base, const int *use_width, const i64 *use_x, const int *children,
           const int *child_rows, const REAL *values, const REAL *flows, const REAL *lift, const REAL *elements, REAL *up,
           REAL *child, int *wide) {
    __shared__ REAL found[2][THREADS / 32];
    int u = blockIdx.x, size = use_size[u], count = use_count[u];
    const int *ids = children + use_child[u];
    wait_for_earlier();
    EACH_SAMPLE(b, n_sample) {
        u64 line = (u64)b * n_row, row = line + use_row[u];
        const REAL *from = elements + (u64)n_sample * use_base[u] + (u64)b * use_width[u];
        auto above = [&](int m) { return WIDTH ? lift_of(values[row + m], flows[row + m]) : lift[row + m]; };
        auto below = [&](int c) { return WIDTH ? product_of(child_rows + (use_child[u] + c) * WIDTH, values + line) : from[ids[c]]; };
        REAL s = NOTHING, most = NOTHING;
        for (int m = threadIdx.x; m < size; m += THREADS) s = rk_max(s, above(m));
        for (int c = threadIdx.x; c < count; c += THREADS) most = rk_max(most, below(c));
        s = largest_of(s, found[0]);
        most = largest_of(most, found[1]);
        bool some = s > NOTHING, far = some && most + s > WIDE;
        for (int m = threadIdx.x; m < size; m += THREADS) {
            REAL v = above(m);
            up[(u64)b * n_up + use_row[u] + m] = far ? v : some ? rk_exp(v - s) : (REAL)0;
        }
        for (int c = threadIdx.x; c < count; c += THREADS) {
            REAL v = below(c);
            child[(u64)b * n_x + use_x[u] + c] = far ? v : some ? rk_exp(v + s) : (REAL)0;
        }
        if (threadIdx.x == 0) wide[(u64)b * n_use + u] = far;
        __syncthreads();  // before `found` is written again
    }
}

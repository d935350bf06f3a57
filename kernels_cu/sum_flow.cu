// Accumulate expected counts of weights: F = fma(up, child, F) over the steps (sample, use), without the weight
// itself.
//
//   block_theta i64 (n_block), block_use int (n_block + 1): first weight and first use of a block of weights (child, node)
//   use_up, use_size, use_count int, use_x i64 (n_use); up (n_sample, n_up), child (n_sample, n_x) REAL, wide int: see
//   flow_steps.cu. Where a step is wide each edge that has a weight adds exp(lift + value).
//   tile_block (n_tile), tile_place (n_tile, 2) int: CHILDREN x NODES of a block
//   theta, chains REAL, totals double: in the order of the weights. position (1) i64: samples before; after every BLOCK-th
//   sample, and CHAIN steps of float, the chains are added to the totals and restart from 0.
//
// Grid: n_tile, a thread ROWS x COLUMNS weights. Order: samples, then uses, ascending. Asynchronous copies fill ST stages
// of DEPTH steps; steps behind the last one add 0. Tables are prefetched one stage.
// Macros: REAL, CHILDREN, NODES, ROWS, COLUMNS, VEC (values that are copied at a time: 1 or 4), BLOCKS (of a multiprocessor, at least).
// mirror: rpukit/circuits/_mirror/learning.py::sum_flow
// op: rpukit.circuits.ops.counts.sum_flow
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: VEC=4
// check: VEC=4 BLOCKS=3
// check: VEC=4 CHILDREN=16 NODES=16 ROWS=2 COLUMNS=1
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"
#include "rk_shared.cuh"

#ifndef CHILDREN
#define CHILDREN 64
#endif
#ifndef NODES
#define NODES 64
#endif
#ifndef ROWS
#define ROWS 8
#endif
#ifndef COLUMNS
#define COLUMNS 4
#endif
#ifndef VEC
#define VEC 1
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#define DEPTH (VEC == 4 ? 32 : 16)
#define ST 3
#define ACROSS (NODES / COLUMNS)
#define THREADS (CHILDREN / ROWS * ACROSS)
#define LINE (NODES / VEC)  // threads that copy a step
#define APART (THREADS / LINE < DEPTH ? THREADS / LINE : DEPTH)
#define COPIES (DEPTH / APART)
static_assert(CHILDREN == NODES && THREADS % LINE == 0 && DEPTH % APART == 0 && THREADS >= DEPTH, "threads copy whole steps");
#define TOGETHER 4  // values that are read at a time, where a thread has so many
#define MOST_LOADED (BLOCKS > 1 ? 8 : 16)
#define LOADED (ROWS * COLUMNS < MOST_LOADED ? ROWS * COLUMNS : MOST_LOADED)  // totals of a thread that are read together
static_assert(ACROSS % 8 == 0 && CHILDREN / ROWS % 4 == 0, "whole warps");

// A thread's value r of N, out of T threads that have such.
template <int N, int T> __device__ __forceinline__ int index_of(int r, int t) {
    return N % TOGETHER ? t * N + r : r / TOGETHER * (TOGETHER * T) + t * TOGETHER + r % TOGETHER;
}
template <int N> struct __align__(N * sizeof(REAL)) Few { REAL v[N]; };
template <int N, int T> __device__ __forceinline__ void read(REAL (&v)[N], const REAL *line, int t) {
    constexpr int n = N % TOGETHER ? N : TOGETHER;
#pragma unroll
    for (int r = 0; r < N; r += n) {
        Few<n> few = *(const Few<n> *)(line + index_of<N, T>(r, t));
#pragma unroll
        for (int x = 0; x < n; ++x) v[r + x] = few.v[x];
    }
}

// Step s of (sample, use), and those DEPTH after it.
struct Step {
    int b, u;
    __device__ __forceinline__ void begin(int s, int uses) { b = s / uses, u = s % uses; }
    __device__ __forceinline__ void go_on(int samples, int rest, int uses) {  // DEPTH = samples * uses + rest
        b += samples, u += rest;
        if (u >= uses) u -= uses, ++b;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
sum_flow(int n_sample, int n_use, int n_up, i64 n_x, const i64 *position, const i64 *block_theta, const int *block_use, const int *use_up,
         const int *use_size, const int *use_count, const i64 *use_x, const int *tile_block, const int *tile_place,
         const REAL *theta, const REAL *up, const REAL *child, const int *wide, REAL *chains, double *totals) {
    extern __shared__ __align__(16) unsigned char raw[];
    REAL(*below)[DEPTH][CHILDREN] = (REAL(*)[DEPTH][CHILDREN])raw, (*above)[DEPTH][NODES] = (REAL(*)[DEPTH][NODES])(below + ST);
    u32 *far = (u32 *)(above + ST);  // (ST, DEPTH)
    int k = tile_block[blockIdx.x], c0 = tile_place[2 * blockIdx.x], m0 = tile_place[2 * blockIdx.x + 1];
    int first = block_use[k], uses = block_use[k + 1] - first, size = use_size[first] - m0, count = use_count[first] - c0;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_step = n_sample * uses;  // 4 x 8 lanes, in pairs that read the same nodes
    int ti = warp / (ACROSS / 8) * 4 + lane / 16 * 2 + lane % 2, tj = warp % (ACROSS / 8) * 8 + lane / 2 % 8;
    u64 step = use_size[first], base = block_theta[k] + (u64)c0 * step + m0;
    auto row = [&](int p) { return index_of<ROWS, CHILDREN / ROWS>(p, ti); };
    auto column = [&](int q) { return index_of<COLUMNS, ACROSS>(q, tj); };
    auto inside = [&](int p, int q) { return row(p) < count && column(q) < size; };
    REAL f[ROWS][COLUMNS];
    int d0 = threadIdx.x / LINE, x = threadIdx.x % LINE * VEC, samples = DEPTH / uses, rest = DEPTH % uses;
    bool of_child = x < count, of_up = x < size;  // whole copies: lines are padded
    const REAL *child_from = child + (of_child ? c0 + x : 0), *up_from = up + (of_up ? m0 + x : 0);
    Step at[COPIES], flag;
    i64 at_child[COPIES];
    int at_up[COPIES];
#pragma unroll
    for (int e = 0; e < COPIES; ++e) at[e].begin(d0 + e * APART, uses);
    flag.begin(threadIdx.x, uses);
    auto find = [&]() {
#pragma unroll
        for (int e = 0; e < COPIES; ++e) at_child[e] = use_x[first + at[e].u], at_up[e] = use_up[first + at[e].u];
    };
    auto ask = [&](int slot) {
#pragma unroll
        for (int e = 0; e < COPIES; ++e) {
            if (d0 >= APART) break;
            int d = d0 + e * APART;
            bool there = at[e].b < n_sample;
            i64 b = there ? at[e].b : 0;
            rk_copy<VEC * sizeof(REAL)>(rk_shared_address(&below[slot][d][x]), child_from + (b * n_x + at_child[e]), there && of_child ? VEC * (int)sizeof(REAL) : 0);
            rk_copy<VEC * sizeof(REAL)>(rk_shared_address(&above[slot][d][x]), up_from + (b * n_up + at_up[e]), there && of_up ? VEC * (int)sizeof(REAL) : 0);
            at[e].go_on(samples, rest, uses);
        }
        if (threadIdx.x < DEPTH) {
            bool there = flag.b < n_sample;
            rk_copy<4>(rk_shared_address(&far[slot * DEPTH + threadIdx.x]), wide + ((u64)(there ? flag.b : 0) * n_use + first + flag.u), there ? 4 : 0);
            flag.go_on(samples, rest, uses);
        }
        rk_copies_end();
        find();
    };
    find();
    wait_for_earlier();
    for (int t = 0; t < ST - 1; ++t) ask(t);
    int passed = (int)(*position % BLOCK) * uses;  // of the block of samples, before step 0
    int settled = end_of_chain(passed, uses) - passed;  // steps before the chains are settled
    bool fresh = passed == 0, ended = false;  // chains that begin, and end, with the block of samples are 0
#pragma unroll
    for (int z = 0; z < ROWS * COLUMNS; ++z) {
        int p = z / COLUMNS, q = z % COLUMNS;
        f[p][q] = !fresh && inside(p, q) ? chains[base + (u64)row(p) * step + column(q)] : (REAL)0;
    }
    for (int t0 = 0, now = 0; t0 < n_step; t0 += DEPTH, now = (now + 1) % ST) {
        rk_copies_left<ST - 2>();
        bool some_far = __syncthreads_or(threadIdx.x < DEPTH && far[now * DEPTH + threadIdx.x]);
        ask((now + ST - 1) % ST);
        auto add = [&](int d) {
            REAL v[ROWS], w[COLUMNS];
            read<ROWS, CHILDREN / ROWS>(v, below[now][d], ti);
            read<COLUMNS, ACROSS>(w, above[now][d], tj);
#pragma unroll
            for (int z = 0; z < ROWS * COLUMNS; ++z)
                f[z / COLUMNS][z % COLUMNS] = rk_fma(w[z % COLUMNS], v[z / COLUMNS], f[z / COLUMNS][z % COLUMNS]);
        };
        if (!some_far && !(settled >= t0 + 1 && settled <= t0 + DEPTH)) {
#pragma unroll
            for (int d = 0; d < DEPTH; ++d) add(d);
            continue;
        }
#pragma unroll 1
        for (int d = 0; d < min(DEPTH, n_step - t0); ++d) {
            if (!far[now * DEPTH + d]) {
                add(d);
            } else {
#pragma unroll
                for (int z = 0; z < ROWS * COLUMNS; ++z) {
                    int p = z / COLUMNS, q = z % COLUMNS;
                    if (inside(p, q) && theta[base + (u64)row(p) * step + column(q)] > (REAL)0)
                        f[p][q] = f[p][q] + rk_exp(above[now][d][column(q)] + below[now][d][row(p)]);
                }
            }
            if (t0 + d + 1 != settled) continue;
            ended = settled == n_step;
            if (passed + settled == BLOCK * uses) passed -= BLOCK * uses;
            settled = end_of_chain(passed + settled, uses) - passed;
#pragma unroll
            for (int z0 = 0; z0 < ROWS * COLUMNS; z0 += LOADED) {
                double old[LOADED];  // loaded together
#pragma unroll
                for (int x = 0; x < LOADED; ++x) {
                    int p = (z0 + x) / COLUMNS, q = (z0 + x) % COLUMNS;
                    old[x] = inside(p, q) ? totals[base + (u64)row(p) * step + column(q)] : 0.0;
                }
#pragma unroll
                for (int x = 0; x < LOADED; ++x) {
                    int p = (z0 + x) / COLUMNS, q = (z0 + x) % COLUMNS;
                    settle(f[p][q], old[x]);
                    if (inside(p, q)) totals[base + (u64)row(p) * step + column(q)] = old[x];
                }
            }
        }
    }
    rk_copies_left<0>();  // of steps that there are not: none is under way when the block ends
#pragma unroll
    for (int z = 0; z < ROWS * COLUMNS; ++z) {
        int p = z / COLUMNS, q = z % COLUMNS;
        if (!(fresh && ended) && inside(p, q)) chains[base + (u64)row(p) * step + column(q)] = f[p][q];
    }
}

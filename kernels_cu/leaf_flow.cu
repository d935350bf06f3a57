// Accumulate expected sufficient statistics of leaves over the steps (sample, use of a node's parameters).
//
//   of a table: flow for each value; of numbers: sums of flow d, flow d^2, flow, where d is x, of a GAUSSIAN x minus its
//   mean; last the flow of missing values. The first two sums of a POISSON are held at LARGEST, so that they stay finite.
//
//   kinds, n_statistic (n_node) int; place, centre i64: where a node's statistics begin, and where a GAUSSIAN has its mean
//   use_first (n_node + 1) i64, use_row int: rows that use a node; variable int: of a row
//   tile_first, tile_size (n_tile) int: up to 32 nodes of one vector
//   codes int, numbers REAL (n_sample, n_variable), parameters REAL, flows (n_sample, n_row) REAL; chains REAL, totals double
//   position (1) i64: samples before; after every BLOCK-th sample, and CHAIN steps of float, the chains are added to the totals
//   and restart from 0.
//
// Grid: (n_tile, parts), blocks of 8 warps; a block has its part of the values, the lanes of a warp are the nodes of a tile. A
// block lists the steps of its values among the next SCAN; warp w takes those whose value is w of 8, TOGETHER at a time. Where
// there are many steps the chains of a block's values lie in shared memory meanwhile.
// Macro: REAL.
// mirror: rpukit/circuits/_mirror/learning.py::leaf_flow
// op: rpukit.circuits.ops.layers.leaf_flow
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: docs/semantics/circuits.md, section 3.
#include "circuit_rows.cuh"

#define WARPS 8
#define SCAN 2048  // no more than a u16 counts
#define EACH (SCAN / WARPS / 32)
#define TOGETHER 4
#define HELD (1056 / (int)sizeof(REAL))  // values of a block in shared memory
#define STRIDE 33  // values of a node, and nodes of a value, are in different banks
#define BLOCKS (16 / (int)sizeof(REAL))  // of a multiprocessor
#define LARGEST (sizeof(REAL) == 4 ? (REAL)3.4028234663852886e38 : (REAL)1.0463951242053392e298)  // 2^990: totals are finite

typedef unsigned short u16;

// Steps s0 + step of a block's values, as they come.
struct List {
    u16 step[SCAN];
    int value[SCAN], counts[WARPS];
};

// List the steps s0 to stop - 1 that have a value (-1: none), which `value_of(s)` finds. Returns how many there are.
template <class Value> __device__ __forceinline__ int list_steps(List &list, int s0, int stop, Value value_of) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, value[EACH], n = 0, at = 0;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        int s = s0 + (warp * EACH + e) * 32 + lane;
        value[e] = s < stop ? value_of(s) : -1;
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) n += __popc(__ballot_sync(~0u, value[e] >= 0));
    if (lane == 0) list.counts[warp] = n;
    __syncthreads();
    n = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        if (w == warp) at = n;
        n += list.counts[w];
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        u32 found = __ballot_sync(~0u, value[e] >= 0), mine = 1u << lane;
        int here = at + __popc(found & (mine - 1));
        if (found & mine) list.step[here] = (u16)((warp * EACH + e) * 32 + lane), list.value[here] = value[e];
        at += __popc(found);
    }
    __syncthreads();
    return n;
}

// The values of a block: first and those behind it of n_node nodes, whose chains are held, or nullptr.
struct Part {
    REAL *held;
    const i64 *place;
    int n_node, first, n_value;
    // act(held chain, where it is among all chains); neighbours of a warp are values of one node.
    template <class Act> __device__ __forceinline__ void each(Act act) const {
        for (int q = threadIdx.x / 32; q < n_node; q += WARPS)
#pragma unroll 4
            for (int x = threadIdx.x % 32; x < n_value; x += 32) act(held[x * STRIDE + q], place[q] + first + x);
    }
    // End the chains; totals are loaded together.
    __device__ __forceinline__ void settle_all(REAL *chains, double *totals) const {
        for (int q = threadIdx.x / 32; q < n_node; q += WARPS)
            for (int x0 = threadIdx.x % 32; x0 < n_value; x0 += 32 * TOGETHER) {
                i64 at = place[q] + first + x0;
                REAL *chain = held ? held + x0 * STRIDE + q : chains + at;
                int apart = 32 * (held ? STRIDE : 1);
                double old[TOGETHER];
                bool some[TOGETHER];  // of a chain of 0 the total stays as it is
#pragma unroll
                for (int e = 0; e < TOGETHER; ++e) {
                    some[e] = x0 + e * 32 < n_value && chain[e * apart] != (REAL)0;
                    old[e] = some[e] ? totals[at + e * 32] : 0.0;
                }
#pragma unroll
                for (int e = 0; e < TOGETHER; ++e) {
                    if (!some[e]) continue;
                    settle(chain[e * apart], old[e]);
                    totals[at + e * 32] = old[e];
                }
            }
    }
};

extern "C" __global__ void __launch_bounds__(256, BLOCKS)
leaf_flow(int n_sample, int n_variable, int n_row, const i64 *position, const int *kinds, const int *n_statistic, const i64 *use_first,
          const int *use_row, const int *variable, const i64 *place, const i64 *centre, const int *tile_first, const int *tile_size,
          const int *codes, const REAL *numbers, const REAL *parameters, const REAL *flows, REAL *chains, double *totals) {
    __shared__ List list;
    __shared__ REAL held[HELD * STRIDE];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n0 = tile_first[blockIdx.x], n_node = tile_size[blockIdx.x];
    bool own = lane < n_node, table = kinds[n0] < GAUSSIAN, counts = kinds[n0] != GAUSSIAN;
    int missing = n_statistic[n0], share = table ? (missing + gridDim.y) / gridDim.y : missing + 1, first = blockIdx.y * share;
    int n_value = max(0, min(share, missing + 1 - first)), uses = (int)(use_first[n0 + 1] - use_first[n0]), n_step = n_sample * uses;
    const int *rows = use_row + use_first[n0];  // of the first node; those of the others follow
    bool holds = table && n_value <= HELD && n_step > missing / 16;
    REAL *line = holds ? held + lane : chains + place[n0 + min(lane, n_node - 1)] + first;
    int apart = holds ? STRIDE : 1;
    Part part{holds ? held : nullptr, place + n0, n_node, first, n_value};
    wait_for_earlier();
    int passed = (int)(*position % BLOCK) * uses;  // of the block of samples, before step 0
    bool fresh = passed == 0, ended = false;  // chains that begin, and end, with the block of samples are 0
    if (holds) part.each([&](REAL &chain, i64 at) { chain = fresh ? (REAL)0 : chains[at]; });
    REAL mean = kinds[n0] == GAUSSIAN ? parameters[centre[n0 + min(lane, n_node - 1)]] : (REAL)0;
    for (int s0 = 0, end = end_of_chain(passed, uses) - passed; s0 < n_step;) {  // end: of a chain
        int stop = min(min(s0 + SCAN, end), n_step);
        int n_found = list_steps(list, s0, stop, [&](int s) {
            int v = table ? codes[(u64)(s / uses) * n_variable + variable[rows[s % uses]]] : 0;
            v = (v < 0 ? missing : table && v >= missing ? missing + 1 : v) - first;  // above: of other leaves alone
            return v < n_value ? v : -1;
        });
        for (int k0 = 0; k0 < n_found; k0 += 32) {
            int k = min(k0 + lane, n_found - 1), s = s0 + list.step[k], v = list.value[k], b = s / uses, row = rows[s % uses];
            u32 mine = __ballot_sync(~0u, k0 + lane < n_found && (table ? v % WARPS : 0) == warp);
            while (mine) {
                REAL f[TOGETHER], sum[TOGETHER];
                int at[TOGETHER], from = 0;
#pragma unroll
                for (int j = 0; j < TOGETHER; ++j) {
                    bool there = mine && (table || j == 0);
                    if (there) from = __ffs(mine) - 1, mine &= mine - 1;
                    at[j] = __shfl_sync(~0u, v, from) * apart;
                    u64 of = (u64)__shfl_sync(~0u, b, from) * n_row + __shfl_sync(~0u, row, from) + lane;
                    f[j] = own && there ? flows[of] : (REAL)0;
                }
                if (table) {
#pragma unroll
                    for (int j = 0; j < TOGETHER; ++j) sum[j] = line[at[j]];
#pragma unroll
                    for (int j = 0; j < TOGETHER; ++j) {
#pragma unroll
                        for (int x = 0; x < j; ++x) sum[j] = at[x] == at[j] ? sum[x] : sum[j];  // the last of its value
                        if (f[j] > (REAL)0) line[at[j]] = sum[j] = sum[j] + f[j];
                    }
                } else {
                    REAL y = numbers[(u64)__shfl_sync(~0u, b, from) * n_variable + variable[__shfl_sync(~0u, row, from)]];
                    if (f[0] > (REAL)0) {
                        if (y != y) {
                            line[3] = line[3] + f[0];
                        } else {
                            REAL d = y - mean;
                            REAL one = rk_fma(f[0], d, line[0]), two = rk_fma(f[0], d * d, line[1]);
                            line[0] = counts ? rk_min(one, LARGEST) : one;
                            line[1] = counts ? rk_min(two, LARGEST) : two;
                            line[2] = line[2] + f[0];
                        }
                    }
                }
            }
        }
        __syncthreads();  // before the list is written again
        ended = stop == end;
        if (ended) {
            part.settle_all(chains, totals);
            __syncthreads();  // list_steps has barriers of its own before chains change
            if (passed + end == BLOCK * uses) passed -= BLOCK * uses;
            end = end_of_chain(passed + end, uses) - passed;
        }
        s0 = stop;
    }
    if (holds && !(fresh && ended)) part.each([&](REAL &chain, i64 at) { chains[at] = chain; });
}

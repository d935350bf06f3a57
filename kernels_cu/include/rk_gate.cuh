// A grid-wide barrier between layers: a layer begins when all blocks have finished the previous one. All
// blocks have to be resident at once (a cooperative launch). RK_ON_CPU: blocks run one by one, so a launch is one layer.
// ALONE: a block waits for itself alone, since no other has parts of its samples.
#pragma once
#include "rk_early.cuh"
#include "rk_types.cuh"

#ifndef ALONE
#define ALONE 0
#endif

// `arrived` counts: block 0 adds what turns the highest bit when the others add 1 each, so that afterwards the lower
// bits are what they were, for a next launch of any number of blocks. It begins as 0.
struct Gate {
    u32 *arrived, ticket;
    bool is_open, later;  // later: not the launch's first layer

    __device__ __forceinline__ explicit Gate(u32 *arrived) : arrived(arrived), ticket(0u), is_open(false), later(false) {}
    // All threads: the results of the previous layer can be read after the next barrier of the block.
    __device__ __forceinline__ void open() {
        if (is_open) return;
        is_open = true;
        if (!later) {
            rk_wait_for_earlier();
            rk_let_later_begin();
        }
#ifndef RK_ON_CPU
        else if (!ALONE && threadIdx.x == 0) {
            u32 now;
            do
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
            while (!((ticket ^ now) >> 31));
        }
#endif
    }
    // All threads: this block has finished its layer.
    __device__ __forceinline__ void close() {
        open();
        __syncthreads();
#ifndef RK_ON_CPU
        if (!ALONE && threadIdx.x == 0) {
            u32 more = blockIdx.x ? 1u : 0x80000000u - (gridDim.x - 1u);
            asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(ticket) : "l"(arrived), "r"(more) : "memory");
        }
#endif
        is_open = false, later = true;
    }
};

// The parts of a block in layers first to end - 1: tiles first[layer] to first[layer + 1] - 1, each of them n_across times.
struct Walk {
    const int *first;
    int end, n_across, layer, part, tile0, n_tile;

    __device__ __forceinline__ Walk(const int *first, int layer, int end, int n_across) : first(first), end(end), n_across(n_across) {
        enter(layer);
        skip();
    }
    __device__ __forceinline__ void enter(int new_layer) {
        layer = new_layer, part = blockIdx.x, tile0 = first[layer], n_tile = first[layer + 1] - tile0;
    }
    __device__ __forceinline__ void skip() {
        while (part >= n_tile * n_across) {
            if (layer + 1 == end) {
                layer = end;
                return;
            }
            enter(layer + 1);
        }
    }
    __device__ __forceinline__ void next() {
        part += gridDim.x;
        skip();
    }
    __device__ __forceinline__ bool there() const { return layer < end; }
    __device__ __forceinline__ int tile() const { return tile0 + part % n_tile; }
    __device__ __forceinline__ int across() const { return part / n_tile; }
};

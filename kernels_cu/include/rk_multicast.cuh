// Copies of boxes to several blocks of a cluster, and arrivals at their barriers. Uses the macros CLUSTER, the number of its blocks, and
// SHARE: neighbours among them that share boxes.
#pragma once
#include "rk_cluster.cuh"
#include "rk_tma.cuh"

#if SHARE == 1
__device__ __forceinline__ void rk_blocks_meet() { __syncthreads(); }
#if CLUSTER == 1
__device__ __forceinline__ u32 rk_cluster_address(u32 own, int) { return own; }
#endif
__device__ __forceinline__ void rk_arrive_at(u32 bar) { rk_arrive(bar); }
template <int N> __device__ __forceinline__ void rk_load_box_to(u32 shared, const RkTensorMap &m, int x, int y, u32 bar, u32) {
    rk_load_box(shared, m, x, y, bar);
}
#else
// All threads of the cluster. Orders no writes but those of barriers (rk_barriers_ready): a fence takes a microsecond.
__device__ __forceinline__ void rk_blocks_meet() {
#ifdef RK_ON_CPU
    rk_cluster_wait();
#else
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}
// At a barrier of another block, whose address is one of rk_cluster_address. Says that this thread no longer reads, not what it wrote.
__device__ __forceinline__ void rk_arrive_at(u32 bar) {
#ifdef RK_ON_CPU
    rk_arrive(bar);
#else
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
#endif
}
// To the same place of N blocks, the bits of `blocks`; each counts the bytes at its own barrier.
template <int N> __device__ __forceinline__ void rk_load_box_to(u32 shared, const RkTensorMap &m, int x, int y, u32 bar, u32 blocks) {
    if (N == 1) {
        rk_load_box(shared, m, x, y, bar);
        return;
    }
#ifdef RK_ON_CPU
    for (int rank = 0; rank < CLUSTER; ++rank)
        if (blocks >> rank & 1) rk_load_box(rk_cluster_address(shared, rank), m, x, y, rk_cluster_address(bar, rank));
#else
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2,%3}], [%4], %5;"
        ::"r"(shared), "l"(&m), "r"(x), "r"(y), "r"(bar), "h"((u16)blocks) : "memory");
#endif
}
#endif

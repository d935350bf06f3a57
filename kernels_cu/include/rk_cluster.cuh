// Clusters of CLUSTER blocks: their barrier, and what is in the shared memory of another block of one's own. From sm_90 on, and
// on a CPU by tests/on_cpu/clusters.h; elsewhere a launch has no clusters.
#pragma once
#include "rk_shared.cuh"

#if CLUSTER > 1
#if defined(RK_ON_CPU)
__device__ __forceinline__ void rk_cluster_arrive() {}
__device__ __forceinline__ void rk_cluster_wait() { oncpu::cluster_barrier(); }
__device__ __forceinline__ u32 rk_cluster_address(u32 own, int rank) { return rk_shared_address(oncpu::cluster_peer(rk_shared(own), rank)); }
template <class T> __device__ __forceinline__ T rk_cluster_load(const T *own, int rank) { return *oncpu::cluster_peer(own, rank); }
#elif __CUDA_ARCH__ >= 900
// What a thread wrote before it arrives is there for all who have waited.
__device__ __forceinline__ void rk_cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void rk_cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ u32 rk_cluster_address(u32 own, int rank) {
    u32 at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(own), "r"(rank));
    return at;
}
__device__ __forceinline__ float rk_cluster_load(const float *own, int rank) {
    float v;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(rk_cluster_address(rk_shared_address(own), rank)));
    return v;
}
__device__ __forceinline__ float4 rk_cluster_load(const float4 *own, int rank) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(rk_cluster_address(rk_shared_address(own), rank)));
    return v;
}
__device__ __forceinline__ double rk_cluster_load(const double *own, int rank) {
    double v;
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(v) : "r"(rk_cluster_address(rk_shared_address(own), rank)));
    return v;
}
#else
__device__ __forceinline__ void rk_cluster_arrive() { __trap(); }
__device__ __forceinline__ void rk_cluster_wait() { __trap(); }
template <class T> __device__ __forceinline__ T rk_cluster_load(const T *own, int) { return *own; }
#endif
#endif
#if CLUSTER == 1 || defined(RK_ON_CPU) || __CUDA_ARCH__ < 900
#define RK_CLUSTER(n)
#else
#define RK_CLUSTER(n) __cluster_dims__(n, 1, 1)
#endif

// The bulk copy engine (TMA): boxes of a matrix to and from shared memory, and the barriers that count their
// bytes. RK_ON_CPU: plain copies, as late as their waits allow; a wait yields to the other threads.
#pragma once
#include "rk_early.cuh"
#include "rk_mma.cuh"

// Descriptor that the driver makes of address, lengths, box and swizzle. On the CPU: address; columns, rows; bytes
// between rows; columns and rows of the box; all elements have two bytes, all boxes 64, 32, 16 or 8 columns.
#ifdef RK_ON_CPU
struct RkTensorMap { u64 v[16]; };
#else
struct __align__(64) RkTensorMap { u64 v[16]; };
#endif

// Swizzle: within 1024 bytes, 16-byte units of rows of `bytes`, 128, 64, 32 or 16, change places; of 16 none does.
__device__ __forceinline__ u32 rk_swizzle(u32 address, u32 bytes = 128) { return address ^ (address >> 7 & (bytes / 16 - 1)) << 4; }

#ifdef RK_ON_CPU
#define __grid_constant__
// Barrier: bytes awaited in the low word, plus RK_NONE, as bytes of other blocks may come before they are awaited; then
// arrivals awaited, arrivals in all (12 bits each), phase.
#define RK_NONE 0x80000000ull
static inline void rk_settle(u32 bar) {
    u64 &b = *(u64 *)rk_shared(bar);
    if ((b & 0xffffffffull) == RK_NONE && (b >> 32 & 0xfff) == 0) b = (b ^ (1ull << 56)) | (b >> 44 & 0xfff) << 32;
}
static inline void rk_barrier_init(u32 bar, u32 n) { *(u64 *)rk_shared(bar) = u64(n) << 32 | u64(n) << 44 | RK_NONE; }
static inline void rk_arrive(u32 bar) {
    *(u64 *)rk_shared(bar) -= 1ull << 32;
    rk_settle(bar);
}
static inline void rk_arrive_expect(u32 bar, u32 bytes) {
    *(u64 *)rk_shared(bar) += bytes;
    rk_arrive(bar);
}
static inline void rk_wait(u32 bar, u32 phase) {
    while ((*(u64 *)rk_shared(bar) >> 56 & 1) == phase)
        if (!oncpu::land(bar)) rk_yield();
}
// Arrive when the copies that this thread has asked for are there.
static inline void rk_copies_arrive(u32 bar) {
    oncpu::current->copies.emplace_back(bar, [bar, asked = oncpu::current->running->copies.tasks] {
        for (const oncpu::Copy &copy : asked) copy();
        rk_arrive(bar);
    });
    oncpu::current->running->copies.clear();
}
// Whether that phase is over.
static inline bool rk_test(u32 bar, u32 phase) { return (*(u64 *)rk_shared(bar) >> 56 & 1) != phase; }
static inline bool rk_peek(u32 bar, u32 phase) { return rk_test(bar, phase); }
static inline void rk_barriers_ready() {}
static inline bool rk_elected() {
    __syncwarp();
    return threadIdx.x % 32 == 0;
}
enum RkMove { RK_LOAD, RK_STORE, RK_SPOIL };
static inline void rk_box(const RkTensorMap &m, u32 shared, int x, int y, RkMove move) {
    int columns = int(m.v[1]), rows = int(m.v[2]), width = int(m.v[4]), height = int(m.v[5]);
    for (int r = 0; r < height; ++r)
        for (int c = 0; c < width; ++c) {
            bool inside = x + c >= 0 && x + c < columns && y + r >= 0 && y + r < rows;
            u16 *at = (u16 *)rk_shared(rk_swizzle(shared + 2 * (r * width + c), 2 * width));
            u16 *global = (u16 *)(m.v[0] + (y + r) * m.v[3]) + x + c;
            if (move == RK_SPOIL) *at = 0xffff;
            else if (move == RK_LOAD) *at = inside ? *global : 0;
            else if (inside) *global = *at;
        }
}
static inline void rk_load_box(u32 shared, const RkTensorMap &m, int x, int y, u32 bar) {
    rk_box(m, shared, x, y, RK_SPOIL);
    oncpu::current->copies.emplace_back(bar, [=] {
        rk_box(m, shared, x, y, RK_LOAD);
        *(u64 *)rk_shared(bar) -= 2 * m.v[4] * m.v[5];
        rk_settle(bar);
    });
}
static inline void rk_store_box(const RkTensorMap &m, u32 shared, int x, int y) {
    oncpu::Later &stores = oncpu::current->running->stores;
    stores.tasks.push_back([=] { rk_box(m, shared, x, y, RK_STORE); });
    stores.end_group();
}
template <int N> static inline void rk_stores_left() { oncpu::current->running->stores.leave(N); }
static inline void rk_stores_done() { oncpu::current->running->stores.leave(0); }
static inline void rk_see_stores() {}
template <int N> static inline void rk_more_registers() {}
template <int N> static inline void rk_fewer_registers() {}
// A barrier of a warpgroup, or of several: the last of its threads to arrive releases the others.
static inline void rk_sync_group(int id, u32 n = 128) {
    static u32 come[128], round[128];  // of up to 8 blocks that run together
    id += 16 * (oncpu::current->at.x % oncpu::current->together);
    u32 mine = round[id];
    if (++come[id] == n) come[id] = 0, ++round[id];
    while (round[id] == mine) rk_yield();
}
#else
__device__ __forceinline__ void rk_barrier_init(u32 bar, u32 n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n) : "memory");
}
__device__ __forceinline__ void rk_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void rk_arrive_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void rk_copies_arrive(u32 bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
#if __CUDA_ARCH__ >= 900
#define RK_TEST "try_wait"  // which sleeps for a while
#else
#define RK_TEST "test_wait"
#endif
__device__ __forceinline__ bool rk_test(u32 bar, u32 phase) {  // whether the phase of this parity is over
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier." RK_TEST ".parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0,1,0,p;\n}"
                 : "=r"(done) : "r"(bar), "r"(phase) : "memory");
    return done;
}
__device__ __forceinline__ void rk_wait(u32 bar, u32 phase) {
    while (!rk_test(bar, phase)) {}
}
__device__ __forceinline__ bool rk_peek(u32 bar, u32 phase) {  // the same without a moment's wait
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0,1,0,p;\n}"
                 : "=r"(done) : "r"(bar), "r"(phase) : "memory");
    return done;
}
// One lane of a warp whose lanes are all here.
__device__ __forceinline__ bool rk_elected() {
    u32 yes;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0,1,0,p;\n}" : "=r"(yes));
    return yes;
}
__device__ __forceinline__ void rk_barriers_ready() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void rk_load_box(u32 shared, const RkTensorMap &m, int x, int y, u32 bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2,%3}], [%4];"
                 ::"r"(shared), "l"(&m), "r"(x), "r"(y), "r"(bar) : "memory");
}
__device__ __forceinline__ void rk_store_box(const RkTensorMap &m, u32 shared, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2,%3}], [%1];\ncp.async.bulk.commit_group;"
                 ::"l"(&m), "r"(shared), "r"(x), "r"(y) : "memory");
}
// Wait until at most N of this thread's stores still read shared memory; until all have been done.
template <int N> __device__ __forceinline__ void rk_stores_left() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
__device__ __forceinline__ void rk_stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// Let the copy engine see what this thread wrote to shared memory.
__device__ __forceinline__ void rk_see_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Registers go from the warpgroup that copies to those that multiply.
template <int N> __device__ __forceinline__ void rk_more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ __forceinline__ void rk_fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
__device__ __forceinline__ void rk_sync_group(int id, int n = 128) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
#endif

// N barriers of so many arrivals each, by one thread of a warp: addresses that are the same for all threads cost least.
template <int N, int WARP = 0> __device__ __forceinline__ void rk_barriers_begin(u32 first, u32 arrivals) {
    if (threadIdx.x == 32 * WARP)
#pragma unroll
        for (int s = 0; s < N; ++s) rk_barrier_init(first + 8 * s, arrivals);
}

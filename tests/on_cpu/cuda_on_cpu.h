// Runs CUDA kernels on one CPU core: each thread of a block is a fiber, and a barrier or a warp
// collective is the only place where a fiber gives way. Threads and blocks run in an order that the
// caller picks, and shared memory starts poisoned in every block, so a race shows as a wrong result.
// A barrier that not all threads reach is reported. Floats have no atomics here: the result of one
// would depend on the order of the threads. What the kernels of this project use is covered, no more:
// no wgmma, TMA, textures, clusters or grid-wide synchronisation.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <utility>
#include <type_traits>
#include <vector>
#if !defined(__x86_64__) || defined(ON_CPU_UCONTEXT)
#define ON_CPU_PORTABLE
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
// Shared variables live in one section, so that each block can start with it poisoned.
#define __shared__ static __attribute__((section("oncpu_shared")))
extern "C" char __start_oncpu_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_oncpu_shared[] __attribute__((weak, visibility("hidden")));
#define __align__(n) __attribute__((aligned(n)))

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
static inline uint2 make_uint2(unsigned a, unsigned b) { return {a, b}; }
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct alignas(16) double2 { double x, y; };
static inline float2 make_float2(float a, float b) { return {a, b}; }
static inline int2 make_int2(int a, int b) { return {a, b}; }
static inline int4 make_int4(int a, int b, int c, int d) { return {a, b, c, d}; }
static inline double2 make_double2(double a, double b) { return {a, b}; }
static inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }

namespace oncpu {

constexpr unsigned WARP = 32;
constexpr size_t STACK = 64 * 1024;

#ifdef ON_CPU_PORTABLE
struct Context { ucontext_t uc; };
static inline void swap(Context &from, Context &to) { swapcontext(&from.uc, &to.uc); }
#else
// x86-64 System V: keep the callee-saved registers on the stack, swap stacks.
struct Context { void *sp = nullptr; };
extern "C" void oncpu_swap(void **from, void *to);
asm(R"(
.text
.local oncpu_swap
.type oncpu_swap,@function
oncpu_swap:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
.size oncpu_swap,.-oncpu_swap
)");
static inline void swap(Context &from, Context &to) { oncpu_swap(&from.sp, to.sp); }
#endif

enum State : uint8_t { READY, AT_BLOCK, AT_WARP, DONE };

struct Fiber {
    Context ctx;
    uint3 tid;
    unsigned linear;
    State state;
    uint64_t slot;      // value handed to the warp
    unsigned want;      // mask of lanes that this collective waits for
    int pred;
};

struct Block {
    std::vector<Fiber> fibers;
    char *stacks = nullptr;
    std::vector<unsigned> order;
    Context main;
    Fiber *cur = nullptr;
    dim3 grid, block;
    uint3 bid;
    void (*entry)(void *) = nullptr;
    void *arg = nullptr;
    std::vector<char> dyn;
    uint64_t switches = 0;
    int syncthreads_count = 0;
    bool failed = false;
};

static thread_local Block *current = nullptr;

static inline void yield_as(State s) {
    Fiber *f = current->cur;
    f->state = s;
    ++current->switches;
    swap(f->ctx, current->main);
}

static void fiber_main() {
    current->entry(current->arg);
    yield_as(DONE);
    std::abort();
}

static void arm(Fiber &f, char *stack) {
#ifdef ON_CPU_PORTABLE
    getcontext(&f.ctx.uc);
    f.ctx.uc.uc_stack.ss_sp = stack;
    f.ctx.uc.uc_stack.ss_size = STACK;
    f.ctx.uc.uc_link = nullptr;
    makecontext(&f.ctx.uc, fiber_main, 0);
#else
    uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + STACK) & ~uintptr_t(15);
    void **sp = reinterpret_cast<void **>(top);
    *--sp = nullptr;                                   // keeps the 16-byte rule at entry
    *--sp = reinterpret_cast<void *>(&fiber_main);
    for (int i = 0; i < 6; ++i) *--sp = nullptr;
    f.ctx.sp = sp;
#endif
}

// One block to its end. Deadlock (a divergent barrier) is reported, not hung.
static int run_block() {
    unsigned n = current->fibers.size();
    for (unsigned i = 0; i < n; ++i) { arm(current->fibers[i], &current->stacks[size_t(i) * STACK]); current->fibers[i].state = READY; }
    for (;;) {
        bool ran = false;
        for (unsigned k : current->order) {
            Fiber &f = current->fibers[k];
            if (f.state != READY) continue;
            ran = true;
            current->cur = &f;
            swap(current->main, f.ctx);
        }
        // warps whose wanted lanes have all arrived go on
        bool freed = false;
        for (unsigned w = 0; w < n; w += WARP) {
            unsigned m = std::min(WARP, n - w), at = 0, live = 0;
            for (unsigned l = 0; l < m; ++l) {
                if (current->fibers[w + l].state == AT_WARP) at |= 1u << l;
                if (current->fibers[w + l].state != DONE) live |= 1u << l;
            }
            unsigned ready = 0;
            for (unsigned l = 0; l < m; ++l) if (at >> l & 1 && !((current->fibers[w + l].want & live) & ~at)) ready |= 1u << l;
            at = ready;
            for (unsigned l = 0; l < m; ++l) if (at >> l & 1) { current->fibers[w + l].state = READY; freed = true; }
        }
        if (freed) continue;
        unsigned done = 0, bar = 0, warp = 0;
        for (auto &f : current->fibers) { done += f.state == DONE; bar += f.state == AT_BLOCK; warp += f.state == AT_WARP; }
        if (done == n) return 0;
        if (warp == 0 && bar > 0 && done == 0) { for (auto &f : current->fibers) f.state = READY; continue; }
        if (!ran || warp || (bar && done)) return 1;   // barrier not reached by all threads
    }
}

template <class F> struct Thunk { static void call(void *p) { (*static_cast<F *>(p))(); } };

// 0: as they are, 1: reversed, 2 and more: shuffled by that seed.
template <class T> static void shuffle(std::vector<T> &v, unsigned order) {
    if (order == 1) std::reverse(v.begin(), v.end());
    uint64_t s = order;
    if (order >= 2)
        for (size_t i = v.size(); i > 1; --i) {
            s = s * 6364136223846793005ull + 1442695040888963407ull;
            std::swap(v[i - 1], v[(s >> 33) % i]);
        }
}

template <class F> int launch(const unsigned *g, const unsigned *b, unsigned smem, unsigned order, uint64_t *switches, F f) {
    Block blk;
    blk.grid = {g[0], g[1], g[2]}; blk.block = {b[0], b[1], b[2]};
    unsigned n = b[0] * b[1] * b[2];
    blk.fibers.resize(n); blk.stacks = static_cast<char *>(std::malloc(size_t(n) * STACK)); blk.dyn.resize(smem + 64); blk.order.resize(n);
    for (unsigned i = 0; i < n; ++i) {
        blk.fibers[i].linear = i; blk.order[i] = i;
        blk.fibers[i].tid = {i % b[0], i / b[0] % b[1], i / (b[0] * b[1])};
    }
    shuffle(blk.order, order);
    blk.entry = &Thunk<F>::call; blk.arg = &f;
    Block *old = current; current = &blk;
    int rc = 0;
    std::vector<uint64_t> blocks(uint64_t(g[0]) * g[1] * g[2]);
    for (uint64_t i = 0; i < blocks.size(); ++i) blocks[i] = i;
    shuffle(blocks, order);
    for (uint64_t at : blocks) {
        if (rc) break;
        blk.bid = {unsigned(at % g[0]), unsigned(at / g[0] % g[1]), unsigned(at / g[0] / g[1])};
        if (__start_oncpu_shared) std::memset(__start_oncpu_shared, 0xff, size_t(__stop_oncpu_shared - __start_oncpu_shared));
        std::memset(blk.dyn.data(), 0xff, blk.dyn.size());
        rc = run_block();
    }
    std::free(blk.stacks);
    if (switches) *switches = blk.switches;
    current = old;
    return rc;
}

template <class T> static inline uint64_t bits(T v) { static_assert(sizeof(T) <= 8); uint64_t u = 0; std::memcpy(&u, &v, sizeof v); return u; }
template <class T> static inline T unbits(uint64_t u) { T v; std::memcpy(&v, &u, sizeof v); return v; }

// A warp collective: hand in a value, wait for the lanes of the mask, read.
// The second wait keeps a fast lane from overwriting its slot too early.
template <class R> static inline auto collect(unsigned mask, uint64_t v, R read) {
    Fiber *f = current->cur;
    f->slot = v; f->want = mask;
    yield_as(AT_WARP);
    auto r = read(&current->fibers[f->linear / WARP * WARP], f->linear % WARP);
    f->want = mask;
    yield_as(AT_WARP);
    return r;
}

template <class... A, size_t... I> static inline void apply(void (*k)(A...), void **a, std::index_sequence<I...>) { k(*static_cast<std::remove_const_t<std::remove_reference_t<A>> *>(a[I])...); }
template <class... A> static inline void apply(void (*k)(A...), void **a) { apply(k, a, std::index_sequence_for<A...>{}); }

}  // namespace oncpu

#define threadIdx (oncpu::current->cur->tid)
#define blockIdx (oncpu::current->bid)
#define blockDim (oncpu::current->block)
#define gridDim (oncpu::current->grid)
#define warpSize 32
#define ON_CPU_DYNAMIC_SHARED(T, name) T *name = reinterpret_cast<T *>((reinterpret_cast<uintptr_t>(oncpu::current->dyn.data()) + 63) & ~uintptr_t(63))

static inline void __syncthreads() { oncpu::yield_as(oncpu::AT_BLOCK); }
static inline void __syncwarp(unsigned m = ~0u) { oncpu::current->cur->want = m; oncpu::yield_as(oncpu::AT_WARP); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
template <class T> static inline T __shfl_sync(unsigned m, T v, int src, int w = 32) { return oncpu::collect(m, oncpu::bits(v), [&](oncpu::Fiber *f, unsigned l) { return oncpu::unbits<T>(f[(l & ~(w - 1)) + (src & (w - 1))].slot); }); }
template <class T> static inline T __shfl_xor_sync(unsigned m, T v, int x, int w = 32) { return oncpu::collect(m, oncpu::bits(v), [&](oncpu::Fiber *f, unsigned l) { unsigned s = l ^ x; return (s & ~(w - 1)) == (l & ~(w - 1)) ? oncpu::unbits<T>(f[s].slot) : v; }); }
template <class T> static inline T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32) { return oncpu::collect(m, oncpu::bits(v), [&](oncpu::Fiber *f, unsigned l) { return (l & (w - 1)) + d < unsigned(w) ? oncpu::unbits<T>(f[l + d].slot) : v; }); }
template <class T> static inline T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32) { return oncpu::collect(m, oncpu::bits(v), [&](oncpu::Fiber *f, unsigned l) { return (l & (w - 1)) >= d ? oncpu::unbits<T>(f[l - d].slot) : v; }); }
static inline unsigned __ballot_sync(unsigned m, int p) { return oncpu::collect(m, p != 0, [&](oncpu::Fiber *f, unsigned) { unsigned r = 0; for (unsigned i = 0; i < 32; ++i) if (m >> i & 1 && f[i].slot) r |= 1u << i; return r; }); }
static inline int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
static inline int __all_sync(unsigned m, int p) { return __ballot_sync(m, p) == m; }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
#define ON_CPU_ATOMIC(name, expression) \
    template <class T> static inline T name(T *p, std::common_type_t<T> v) { \
        static_assert(std::is_integral<T>::value, "atomics on floats give bits that depend on the order of threads"); \
        T old = *p; *p = (expression); return old; }
ON_CPU_ATOMIC(atomicAdd, T(old + v))
ON_CPU_ATOMIC(atomicMax, std::max(old, v))
ON_CPU_ATOMIC(atomicMin, std::min(old, v))
ON_CPU_ATOMIC(atomicOr, T(old | v))
ON_CPU_ATOMIC(atomicAnd, T(old & v))
ON_CPU_ATOMIC(atomicExch, v)
template <class T> static inline T atomicCAS(T *p, std::common_type_t<T> c, std::common_type_t<T> v) { T old = *p; if (old == c) *p = v; return old; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
static inline unsigned __float_as_uint(float f) { return oncpu::unbits<unsigned>(oncpu::bits(f)); }
static inline float __uint_as_float(unsigned u) { return oncpu::unbits<float>(u); }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline double __dsqrt_rn(double a) { return std::sqrt(a); }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline double __drcp_rn(double a) { return 1.0 / a; }
static inline long long __double_as_longlong(double d) { return oncpu::unbits<long long>(oncpu::bits(d)); }
static inline double __longlong_as_double(long long v) { return oncpu::unbits<double>(oncpu::bits(v)); }
static inline int __float_as_int(float f) { return oncpu::unbits<int>(oncpu::bits(f)); }
static inline float __int_as_float(int v) { return oncpu::unbits<float>(oncpu::bits(v)); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
static inline int __float2int_rn(float v) { return int(std::nearbyint(v)); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
template <class T> static inline T __ldg(const T *p) { return *p; }
using std::fabs;
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }

#define ON_CPU_EXPORT(id, ...) \
    extern "C" __attribute__((visibility("default"))) int id##__launch(const unsigned *g, const unsigned *b, unsigned smem, unsigned order, uint64_t *sw, void **a) \
    { return oncpu::launch(g, b, smem, order, sw, [&] { oncpu::apply(__VA_ARGS__, a); }); }

// Tensor cores by wgmma (sm_90a): a warpgroup adds a 64 x 16 times 16 x N product to its accumulators; both
// factors lie in shared memory, as descriptors say. RK_ON_CPU: the same, by rk_tensor_step, as late as the wait allows.
//
// Accumulator 4 j + 2 h + l of thread t (warp w of the group, lane) belongs to row 16 w + 8 h + lane / 4 and
// column 8 j + 2 (lane % 4) + l.
#pragma once
#include "rk_tma.cuh"

// Descriptor without its address: swizzle, bytes / 16 between groups of 8 rows (or depths), between slabs.
//  lines along the sum ("K"), 128 bytes a line: groups of 8 lines 1024 bytes apart; 16 elements = 32 bytes
//  lines across it ("MN"): slabs of 64 lines x 64 depths, 128 bytes a depth; 16 depths = 2048 bytes. Or 32, 16 or 8 lines, 2 bytes of
//  each a depth: the tensor core then sees the same lines again where it asks for more
#define RK_DESC_K ((u64)1 << 62 | (u64)64 << 32 | (u64)1 << 16)
#define RK_DESC_MN(LINES)                                                   \
    ((LINES) == 64  ? (u64)1 << 62 | (u64)64 << 32 | (u64)512 << 16          \
     : (LINES) == 8 ? (u64)8 << 16 /* not swizzled: the strides swap places */ \
                    : (u64)((LINES) == 32 ? 2 : 3) << 62 | (u64)(LINES) << 32)
__device__ __forceinline__ u64 rk_descriptor(u64 kind, u32 address) { return kind | (address & 0x3ffff) >> 4; }
// Of what lies 16 `n` bytes further on; without a carry, so that it is one instruction.
__device__ __forceinline__ u64 rk_further(u64 d, u32 n) { return (d & ~0xffffffffull) | ((u32)d + n); }

#ifdef RK_ON_CPU
// Address of element (line, depth) of what a descriptor describes.
template <int MN> static inline u32 rk_element(u64 d, int line, int depth) {
    u32 block = u32(oncpu::current->shared - oncpu::current->memory);  // the descriptor holds 18 bits of the address
    u32 start = block + ((u32(d & 0x3fff) << 4) - block & 0x3ffff), slab = u32(d >> 16 & 0x3fff) << 4, group = u32(d >> 32 & 0x3fff) << 4;
    u32 bytes = d >> 62 ? 256 >> (d >> 62) : 16, lines = bytes / 2;
    if (bytes == 16) std::swap(slab, group);
    return rk_swizzle(MN ? start + line / lines * slab + depth / 8 * group + depth % 8 * bytes + line % lines * 2
                         : start + line / 8 * group + line % 8 * 128 + depth * 2, bytes);
}
template <int TA, int TB, int R> static inline void rk_product(float (&d)[R], u64 da, u64 db, int keep) {
    int t = threadIdx.x % 128, lane = t % 32;
    for (int x = 0; x < R; ++x) {
        int row = t / 32 * 16 + x / 2 % 2 * 8 + lane / 4, column = x / 4 * 8 + lane % 4 * 2 + x % 2;
        u16 a[16], b[16];
        for (int k = 0; k < 16; ++k) {
            a[k] = *(u16 *)rk_shared(rk_element<TA>(da, row, k));
            b[k] = *(u16 *)rk_shared(rk_element<TB>(db, column, k));
        }
        d[x] = rk_tensor_step(keep ? d[x] : 0.0f, a, b);
    }
}
template <int TA, int TB, int R> static inline void rk_wgmma(float (&d)[R], u64 da, u64 db, int keep) {
    oncpu::current->running->products.tasks.push_back([&d, da, db, keep] { rk_product<TA, TB>(d, da, db, keep); });
}
static inline void rk_wgmma_begin() {}
static inline void rk_wgmma_end() { oncpu::current->running->products.end_group(); }
template <int N> static inline void rk_wgmma_left() {
    oncpu::current->running->products.leave(N);
    __syncwarp();  // the lanes of a warp run together there
}
template <int R> static inline void rk_hold(float (&)[R]) {}
#else
#define RK_P(a, b, c, d, e, f, g, h) "%" #a ",%" #b ",%" #c ",%" #d ",%" #e ",%" #f ",%" #g ",%" #h
#define RK_P8 RK_P(0, 1, 2, 3, 4, 5, 6, 7)
#define RK_P16 RK_P8 "," RK_P(8, 9, 10, 11, 12, 13, 14, 15)
#define RK_P24 RK_P16 "," RK_P(16, 17, 18, 19, 20, 21, 22, 23)
#define RK_P32 RK_P24 "," RK_P(24, 25, 26, 27, 28, 29, 30, 31)
#define RK_P40 RK_P32 "," RK_P(32, 33, 34, 35, 36, 37, 38, 39)
#define RK_P48 RK_P40 "," RK_P(40, 41, 42, 43, 44, 45, 46, 47)
#define RK_P56 RK_P48 "," RK_P(48, 49, 50, 51, 52, 53, 54, 55)
#define RK_P64 RK_P56 "," RK_P(56, 57, 58, 59, 60, 61, 62, 63)
#define RK_P72 RK_P64 "," RK_P(64, 65, 66, 67, 68, 69, 70, 71)
#define RK_P80 RK_P72 "," RK_P(72, 73, 74, 75, 76, 77, 78, 79)
#define RK_P88 RK_P80 "," RK_P(80, 81, 82, 83, 84, 85, 86, 87)
#define RK_P96 RK_P88 "," RK_P(88, 89, 90, 91, 92, 93, 94, 95)
#define RK_P104 RK_P96 "," RK_P(96, 97, 98, 99, 100, 101, 102, 103)
#define RK_P112 RK_P104 "," RK_P(104, 105, 106, 107, 108, 109, 110, 111)
#define RK_P120 RK_P112 "," RK_P(112, 113, 114, 115, 116, 117, 118, 119)
#define RK_P128 RK_P120 "," RK_P(120, 121, 122, 123, 124, 125, 126, 127)
#define RK_F(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define RK_F8 RK_F(0)
#define RK_F16 RK_F8, RK_F(8)
#define RK_F24 RK_F16, RK_F(16)
#define RK_F32 RK_F24, RK_F(24)
#define RK_F40 RK_F32, RK_F(32)
#define RK_F48 RK_F40, RK_F(40)
#define RK_F56 RK_F48, RK_F(48)
#define RK_F64 RK_F56, RK_F(56)
#define RK_F72 RK_F64, RK_F(64)
#define RK_F80 RK_F72, RK_F(72)
#define RK_F88 RK_F80, RK_F(80)
#define RK_F96 RK_F88, RK_F(88)
#define RK_F104 RK_F96, RK_F(96)
#define RK_F112 RK_F104, RK_F(104)
#define RK_F120 RK_F112, RK_F(112)
#define RK_F128 RK_F120, RK_F(120)

// R accumulators, the shape n R / 4 x 8; the numbers are those of the operands after the accumulators.
#define RK_WGMMA(R, N, DA, DB, KEEP, X, Y)                                                                     \
    template <int TA, int TB> __device__ __forceinline__ void rk_wgmma(float (&d)[R], u64 da, u64 db, int keep) { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #KEEP ", 0;\n"                                       \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." RK_FACTOR "." RK_FACTOR                 \
                     " {" RK_P##R "}, %" #DA ", %" #DB ", p, 1, 1, %" #X ", %" #Y ";\n}\n"                     \
                     : RK_F##R : "l"(da), "l"(db), "r"(keep), "n"(TA), "n"(TB));                               \
    }
RK_WGMMA(8, 16, 8, 9, 10, 11, 12)
RK_WGMMA(16, 32, 16, 17, 18, 19, 20)
RK_WGMMA(24, 48, 24, 25, 26, 27, 28)
RK_WGMMA(32, 64, 32, 33, 34, 35, 36)
RK_WGMMA(40, 80, 40, 41, 42, 43, 44)
RK_WGMMA(48, 96, 48, 49, 50, 51, 52)
RK_WGMMA(56, 112, 56, 57, 58, 59, 60)
RK_WGMMA(64, 128, 64, 65, 66, 67, 68)
RK_WGMMA(72, 144, 72, 73, 74, 75, 76)
RK_WGMMA(80, 160, 80, 81, 82, 83, 84)
RK_WGMMA(88, 176, 88, 89, 90, 91, 92)
RK_WGMMA(96, 192, 96, 97, 98, 99, 100)
RK_WGMMA(104, 208, 104, 105, 106, 107, 108)
RK_WGMMA(112, 224, 112, 113, 114, 115, 116)
RK_WGMMA(120, 240, 120, 121, 122, 123, 124)
RK_WGMMA(128, 256, 128, 129, 130, 131, 132)
__device__ __forceinline__ void rk_wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void rk_wgmma_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Wait until at most N groups are under way.
template <int N> __device__ __forceinline__ void rk_wgmma_left() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// Keep the compiler from moving accumulators across this point.
template <int R> __device__ __forceinline__ void rk_hold(float (&d)[R]) {
#pragma unroll
    for (int x = 0; x < R; ++x) asm volatile("" : "+f"(d[x])::"memory");
}
#endif

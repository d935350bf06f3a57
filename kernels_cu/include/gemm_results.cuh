// Loads and stores of the accumulators of det_gemm_tensor.cu. Uses its macros BN, OUT_T, WIDE, BUFFERS, LOOSE.
#pragma once
#include "gemm_words.cuh"

// OUT_T: results at (i, j) and (i, j + 1), which are not neighbours in memory.
__device__ __forceinline__ float2 read_pair(const float *m, int i, int j, int n_i, int n_j, int ld) {
    if (i >= n_i || j >= n_j) return make_float2(0.0f, 0.0f);
    return make_float2(m[(u64)j * ld + i], j + 1 < n_j ? m[(u64)(j + 1) * ld + i] : 0.0f);
}
__device__ __forceinline__ void write_pair(float *m, int i, int j, int n_i, int n_j, int ld, float x, float y) {
    if (i >= n_i || j >= n_j) return;
    m[(u64)j * ld + i] = x;
    if (j + 1 < n_j) m[(u64)(j + 1) * ld + i] = y;
}

// Accumulators and a box of 64 x 32 float32 in shared memory, number `box` of the tile's. Every other row takes
// its pairs in another order, so that rows which are moved together lie in different banks.
template <class Move> __device__ __forceinline__ void each_pair(int box, u32 at, Move move) {
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4, other = row % 2 * 64;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
        int x = 16 * box + b / 2 * 4 + b % 2 * 2, column = b / 2 * 32 + lane % 4 * 8;
        u32 line = at + (row + b % 2 * 8) * 128;
        move(x, x + 8, rk_swizzle(line + (column ^ other)), rk_swizzle(line + (column ^ 64 ^ other)), other != 0);
    }
}
__device__ __forceinline__ void read_box(float (&d)[BN / 2], int box, u32 at, bool add) {
    each_pair(box, at, [&](int x, int y, u32 first, u32 second, bool turned) {
        float2 v = rk_read_pair(first), w = rk_read_pair(second), s = turned ? w : v, t = turned ? v : w;
        d[x] = add ? s.x + d[x] : s.x, d[x + 1] = add ? s.y + d[x + 1] : s.y;
        d[y] = add ? t.x + d[y] : t.x, d[y + 1] = add ? t.y + d[y + 1] : t.y;
    });
}
__device__ __forceinline__ void write_box(const float (&d)[BN / 2], int box, u32 at) {
    auto of = [&](int x) { return BN % 32 && x >= BN / 2 ? 0.0f : d[x]; };  // a tile may end within a box
    each_pair(box, at, [&](int x, int y, u32 first, u32 second, bool turned) {
        rk_write_pair(first, turned ? of(y) : of(x), turned ? of(y + 1) : of(x + 1));
        rk_write_pair(second, turned ? of(x) : of(y), turned ? of(x + 1) : of(y + 1));
    });
}

// Box number `box` of 64 rows and 128 bytes of results, in shared memory.
__device__ __forceinline__ void stage_box(const float (&d)[BN / 2], int box, u32 buffer) {
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    if (WIDE) write_box(d, box, buffer);
#pragma unroll
    for (int b = 0; !WIDE && b < 4; ++b) {
        int x = 32 * box + 8 * b;
        if (x >= BN / 2) break;
        rk_store_matrices<false>(rk_swizzle(buffer + row * 128 + (2 * b + lane / 16) * 16), rk_pack16(d[x], d[x + 1]),
                                 rk_pack16(d[x + 2], d[x + 3]), rk_pack16(d[x + 4], d[x + 5]), rk_pack16(d[x + 6], d[x + 7]));
    }
}

// Results through shared memory: whole boxes of 64 rows and 128 bytes, BUFFERS under way at a time.
__device__ __forceinline__ void write_boxes(const float (&d)[BN / 2], const RkTensorMap &o, u32 staging, u32 &sent, int i, int j) {
    int t = threadIdx.x % 128, id = threadIdx.x / 128;
#pragma unroll
    for (int box = 0; box < BN / (WIDE ? 32 : 64); ++box, ++sent) {
        u32 buffer = staging + sent % BUFFERS * 8192;
        if (t == 0) rk_stores_left<BUFFERS - 1>();
        rk_sync_group(id);
        stage_box(d, box, buffer);
        rk_see_stores();
        rk_sync_group(id);
        if (t == 0) rk_store_box(o, buffer, WIDE ? 2 * (j + 32 * box) : j + 64 * box, i);
    }
}

// The same by the threads themselves, for lines that begin anywhere.
template <class T>
__device__ __forceinline__ void write_words(const float (&d)[BN / 2], T *out, u32 staging, int i, int j, int n_i, int n_j, int ld) {
    constexpr int width = WIDE ? 32 : 64;
    int t = threadIdx.x % 128, id = threadIdx.x / 128, column = t % width;
    n_j = min(n_j, j + BN);
#pragma unroll 1
    for (int box = 0; box < (BN + width - 1) / width; ++box) {
        rk_sync_group(id);
#pragma unroll
        for (int b = 0; b < (BN + width - 1) / width; ++b)
            if (b == box) stage_box(d, b, staging);
        rk_sync_group(id);
        int at = j + box * width + column;
        if (!WIDE) write_odd_lines<16>((u16 *)out + (u64)i * ld + (at - column), ld, staging, t / 32, 4, min(64, n_i - i), n_j - (at - column));
        for (int row = t / width; WIDE && row < 64 && i + row < n_i; row += 128 / width)
            if (at < n_j) out[(u64)(i + row) * ld + at] = *(const T *)rk_at(rk_swizzle(staging + row * 128 + column * (int)sizeof(T)));
    }
}

// The same for 16-bit floats and lines of 16 bytes, where the last box is a part of one.
__device__ __forceinline__ void write_lines(const float (&d)[BN / 2], u16 *out, u32 staging, int i, int j, int n_i, int n_j, int ld) {
    int t = threadIdx.x % 128, id = threadIdx.x / 128;
    n_j = min(n_j, j + BN);
#pragma unroll
    for (int box = 0; box < (BN + 63) / 64; ++box) {
        u32 buffer = staging + box % BUFFERS * 8192;
        if (BUFFERS == 1 || box == 0) rk_sync_group(id);  // the lines that were there have been read
        stage_box(d, box, buffer);
        rk_sync_group(id);
#pragma unroll
        for (int e = t; e < 512; e += 128) {
            int row = e / 8, at = j + box * 64 + e % 8 * 8;
            if (i + row < n_i && at < n_j) *(uint4 *)(out + (u64)(i + row) * ld + at) = rk_read_line(rk_swizzle(buffer + row * 128 + e % 8 * 16));
        }
    }
}

// OUT_T, 16-bit floats: through shared memory, then lines of 16 bytes, or with LOOSE single words.
__device__ __forceinline__ void write_turned(const float (&d)[BN / 2], u16 *out, u32 staging, int i, int j, int n_i, int n_j, int ld) {
    int t = threadIdx.x % 128, lane = t % 32, warp = t / 32, id = threadIdx.x / 128;
    rk_sync_group(id);
#pragma unroll
    for (int b = 0; b < BN / 16; ++b) {
        int row = b * 16 + lane / 16 * 8 + lane % 8;
        rk_store_matrices<true>(rk_swizzle(staging + row * 128 + (warp * 2 + lane / 8 % 2) * 16), rk_pack16(d[8 * b], d[8 * b + 1]),
                                rk_pack16(d[8 * b + 2], d[8 * b + 3]), rk_pack16(d[8 * b + 4], d[8 * b + 5]), rk_pack16(d[8 * b + 6], d[8 * b + 7]));
    }
    rk_sync_group(id);
    if (LOOSE) write_odd_lines<BN / 4>(out + (u64)j * ld + i, ld, staging, warp, 4, min(BN, n_j - j), n_i - i);
    for (int e = t; !LOOSE && e < BN * 8; e += 128) {
        int row = e / 8, at = i + e % 8 * 8;
        if (at < n_i && j + row < n_j) *(uint4 *)(out + (u64)(j + row) * ld + at) = rk_read_line(rk_swizzle(staging + row * 128 + e % 8 * 16));
    }
}

// The results of warpgroup `group`'s part of a tile, with ADD added to `total`; `end_i`: where its rows end.
__device__ __forceinline__ void write_results(float (&d)[BN / 2], RESULT *out, const RkTensorMap &o, const float *total, u32 staging, u32 &sent,
                                              int group, int i, int j, int n_i, int end_i, int n_j, int ld) {
    int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    u32 staged = staging + group * (OUT_T ? BN * 128 : BUFFERS * 8192);
#pragma unroll
    for (int x = 0; OUT_T && x < BN / 2; x += 2) {
        int row = i + warp * 16 + x / 2 % 2 * 8 + lane / 4, column = j + x / 4 * 8 + lane % 4 * 2;
        if (ADD) {
            float2 v = read_pair(total, row, column, n_i, n_j, ld);
            d[x] = v.x + d[x], d[x + 1] = v.y + d[x + 1];
        }
        if (WIDE) write_pair((float *)out, row, column, end_i, n_j, ld, d[x], d[x + 1]);
    }
    if (!OUT_T && (LOOSE || (BN % 64 && WIDE))) write_words(d, out, staged, i, j, n_i, n_j, ld);
    else if (!OUT_T && BN % 64) write_lines(d, (u16 *)out, staged, i, j, n_i, n_j, ld);
    else if (!OUT_T) write_boxes(d, o, staged, sent, i, j);
    else if (!WIDE) write_turned(d, (u16 *)out, staged, i, j, end_i, n_j, ld);
}

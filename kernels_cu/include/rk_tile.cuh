// Tiles of a matrix on their way from global memory through registers to shared memory, so that the next
// tile is under way while this one is worked on.
#pragma once
#include "rk_types.cuh"

// Where unit e of a tile (LINES lines of DEPTH elements, V neighbouring ones a unit) lies. Eight lanes of a
// warp read 128 neighbouring bytes of a line, and its four groups of eight take four lines: that reads whole
// sectors, and stores to shared memory, lines fastest, in different banks.
template <int DEPTH, int V>
struct RkGroups {
    static constexpr int n = DEPTH / V < 8 ? DEPTH / V : 8;
};
template <int LINES, int DEPTH, int V>
__device__ __forceinline__ int rk_unit_line(int e) { return e / RkGroups<DEPTH, V>::n % LINES; }
template <int LINES, int DEPTH, int V>
__device__ __forceinline__ int rk_unit_depth(int e) {
    constexpr int n = RkGroups<DEPTH, V>::n;
    return (e / (n * LINES) * n + e % n) * V;
}

// Read LINES x DEPTH elements at (line0, depth0) of a row-major matrix (lines, depth) into the registers of
// N_THREAD threads, V elements of a line at a time (V 4 needs depth % 4 == 0); outside there are zeros.
template <int LINES, int DEPTH, int V, int N_THREAD, int UNITS>
__device__ __forceinline__ void rk_read_tile(float (&r)[UNITS][V], const float *matrix, int lines, int depth, int line0, int depth0) {
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
        int e = threadIdx.x + u * N_THREAD;
        int line = line0 + rk_unit_line<LINES, DEPTH, V>(e), at = depth0 + rk_unit_depth<LINES, DEPTH, V>(e);
        bool inside = line < lines && at < depth;
        const float *p = matrix + (u64)line * depth + at;
        if (V == 4) {
            float4 q = inside ? *(const float4 *)p : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            r[u][0] = q.x;
            r[u][V > 1 ? 1 : 0] = V > 1 ? q.y : r[u][0];
            r[u][V > 2 ? 2 : 0] = V > 2 ? q.z : r[u][0];
            r[u][V > 3 ? 3 : 0] = V > 3 ? q.w : r[u][0];
        } else {
            r[u][0] = inside ? *p : 0.0f;
        }
    }
}

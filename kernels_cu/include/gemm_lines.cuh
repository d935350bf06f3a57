// A thread's lines of det_gemm.cu's tiles, and how it reads them. Uses its macros REAL, UNIT, RM, RN.
#pragma once

// How many neighbours of R lines are read together, where lines lie along memory.
__device__ constexpr int neighbours(int n) { return n % UNIT == 0 ? UNIT : n % 2 == 0 ? 2 : 1; }

// Line r of a thread's R: neighbours where they are read together, far apart where each is read along k.
template <int R, int ALONG, int N_THREAD> __device__ __forceinline__ int line_of(int r, int t) {
    constexpr int together = ALONG ? neighbours(R) : 1;
    return r / together * (together * N_THREAD) + t * together + r % together;
}

// Steps of the sum of a thread's lines, the first of which begins at `at`; ROW_SIZE elements a row. UNIT of them at a time, if not ACROSS.
template <int R, int ACROSS, int ROW_SIZE, int N_THREAD, int STEPS>
__device__ __forceinline__ void read_lines(REAL (&v)[R][STEPS], const REAL *at, int p) {
    constexpr int together = ACROSS ? neighbours(R) : 1;
#pragma unroll
    for (int r = 0; r < R; r += together)
        if (!ACROSS) {
            Unit q = *(const Unit *)(at + line_of<R, ACROSS, N_THREAD>(r, 0) * ROW_SIZE + p);
#pragma unroll
            for (int u = 0; u < STEPS; ++u) v[r][u] = q.v[u];
        } else {
#pragma unroll
            for (int u = 0; u < STEPS; ++u) {
                const REAL *from = at + (p + u) * ROW_SIZE + line_of<R, ACROSS, N_THREAD>(r, 0);
                Some<together> q = *(const Some<together> *)from;
#pragma unroll
                for (int w = 0; w < together; ++w) v[r + w][u] = q.v[w];
            }
        }
}

// Keep the compiler from moving loads before what is accumulated so far.
__device__ __forceinline__ void hold(REAL (&acc)[RM][RN]) {
#ifndef RK_ON_CPU
    if (sizeof(REAL) == 4) asm volatile("" : "+f"((float &)acc[0][0])::"memory");
    else asm volatile("" : "+d"((double &)acc[0][0])::"memory");
#endif
}

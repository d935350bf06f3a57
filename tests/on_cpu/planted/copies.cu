// Planted: copies that are read too early. WAIT: groups of copies that nothing waits for before they are read, LEFT:
// at all. MISPLACED: one whose size does not divide 1: its place, 2: its source. BENEATH: to the place of a
// copy goes 1: another one of its thread, 2: one of another thread, 3: a number. AWAY: a thread reads the copy of another.
#include "rk_shared.cuh"
#ifndef WAIT
#define WAIT 0
#endif
#ifndef LEFT
#define LEFT 0
#endif
#ifndef MISPLACED
#define MISPLACED 0
#endif
#ifndef BENEATH
#define BENEATH 0
#endif
#ifndef AWAY
#define AWAY 0
#endif

extern "C" __global__ void copies(const float *x, float *y) {
    extern __shared__ __align__(16) unsigned char raw[];
    float *s = (float *)raw;
    int i = threadIdx.x;
    s[i] = s[i + 64] = 0.0f;
    for (int k = 0; k < 2; ++k) {
        rk_copy<4>(rk_shared_address(s + 64 * k + i), x + 64 * k + i, 4);
        if (MISPLACED && i == 33 && k == 1) rk_copy<8>(rk_shared_address(s + 120 + (MISPLACED & 1)), x + 120 + (MISPLACED >> 1), 8);
        if ((BENEATH == 1 && i == 33) || (BENEATH == 2 && i == 34)) rk_copy<4>(rk_shared_address(s + 64 * k + 33), x, 4);
        if (BENEATH == 3 && i == 33) s[64 * k + i] = 1.0f;
        rk_copies_end();
    }
    __syncthreads();
    rk_copies_left<WAIT>();
    y[i] = s[i ^ AWAY], y[64 + i] = s[64 + i];
    rk_copies_left<LEFT>();
}

// Exact rank update of an ideal tile, or of cells with bounds: weight -= lr d x^T.
//
//   w[i, j] = fma(-lr * d[s, i], x[s, j], w[i, j])   for s ascending; one chain that starts from w
//   BOUNDED: w[i, j] = clip(w[i, j], low[i, j], high[i, j])   after each sample
//   else the bounds are the largest numbers of the type. A sum beyond them is infinite and remains so; the chain of
//   such a cell is computed again, and held after each sample.
//
//   x (n_batch, n_in), d (n_batch, n_out), low, high (with BOUNDED) and weight (n_out, n_in)   REAL
//   status (1): not zero: do nothing
//
// Grid: (blocks of 64 columns, blocks of 64 rows), 256 threads; a thread owns 4 x 4 cells and keeps
// them in registers, DEPTH samples of x and d at a time in shared memory.
// Macros: REAL, BOUNDED.
// mirror: rpukit/analog/_mirror/update.py::rank_update
// op: rpukit.analog.update.ops.rank_update
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: BOUNDED=1
// check: REAL=double BOUNDED=1
// source: the rank-one update of stochastic gradient descent.
#include "device_steps.cuh"

#ifndef BOUNDED
#define BOUNDED 0
#endif

#define TILE 64
#define DEPTH 16

extern "C" __global__ void __launch_bounds__(256)
rank_update(int n_batch, int n_in, int n_out, REAL lr, const REAL *x, const REAL *d, const REAL *low, const REAL *high,
            REAL *weight, const int *status) {
    __shared__ REAL xs[DEPTH][TILE], ds[DEPTH][TILE];
    if (*status) return;  // the same for every thread of the launch
    int col0 = blockIdx.x * TILE, row0 = blockIdx.y * TILE, tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    REAL w[4][4];
#if BOUNDED
    REAL lo[4][4], hi[4][4];
#endif
    for (int r = 0; r < 4; ++r)
        for (int c = 0; c < 4; ++c) {
            int row = row0 + ty * 4 + r, col = col0 + tx + 16 * c;
            bool in = row < n_out && col < n_in;
            w[r][c] = in ? weight[(u64)row * n_in + col] : 0.0f;
#if BOUNDED
            lo[r][c] = in ? low[(u64)row * n_in + col] : 0.0f;
            hi[r][c] = in ? high[(u64)row * n_in + col] : 0.0f;
#endif
        }
    for (int first = 0; first < n_batch; first += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < DEPTH * TILE; i += 256) {
            int k = i / TILE, q = i % TILE, s = first + k;
            xs[k][q] = s < n_batch && col0 + q < n_in ? x[(u64)s * n_in + col0 + q] : 0.0f;
            ds[k][q] = s < n_batch && row0 + q < n_out ? rk_hold(-lr * d[(u64)s * n_out + row0 + q]) : 0.0f;
        }
        __syncthreads();
        int n = min(DEPTH, n_batch - first);
        for (int k = 0; k < n; ++k) {
            REAL dr[4], xc[4];
            for (int r = 0; r < 4; ++r) dr[r] = ds[k][ty * 4 + r];
            for (int c = 0; c < 4; ++c) xc[c] = xs[k][tx + 16 * c];
            for (int r = 0; r < 4; ++r)
                for (int c = 0; c < 4; ++c) {
                    w[r][c] = rk_fma(dr[r], xc[c], w[r][c]);
#if BOUNDED
                    w[r][c] = rk_clip(w[r][c], lo[r][c], hi[r][c]);
#endif
                }
        }
    }
    for (int r = 0; r < 4; ++r)
        for (int c = 0; c < 4; ++c) {
            int row = row0 + ty * 4 + r, col = col0 + tx + 16 * c;
            if (row >= n_out || col >= n_in) continue;
            u64 cell = (u64)row * n_in + col;
#if !BOUNDED
            if (!(rk_abs(w[r][c]) <= rk_largest((REAL)0))) {
                w[r][c] = weight[cell];
                for (int s = 0; s < n_batch; ++s)
                    w[r][c] = rk_hold(rk_fma(rk_hold(-lr * d[(u64)s * n_out + row]), x[(u64)s * n_in + col], w[r][c]));
            }
#endif
            weight[cell] = w[r][c];
        }
}

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
// them in registers, DEPTH samples of x and d at a time in shared memory. With FEW, for few cells and many
// samples: (blocks of FEW columns, blocks of 32 / FEW rows), 288 threads; the first warp owns a cell a lane, the others
// read the samples that follow.
// Macros: REAL, BOUNDED, FEW (0; or 1 or 32 columns of a block).
// mirror: rpukit/analog/_mirror/update.py::rank_update
// op: rpukit.analog.update.ops.rank_update
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// check: BOUNDED=1
// check: REAL=double BOUNDED=1
// check: FEW=1
// check: FEW=32 BOUNDED=1
// check: FEW=32 REAL=double
// source: the rank-one update of stochastic gradient descent.
#include "device_steps.cuh"

#ifndef BOUNDED
#define BOUNDED 0
#endif
#ifndef FEW
#define FEW 0
#endif

// One step of a chain.
__device__ __forceinline__ REAL rank_step(REAL w, REAL d, REAL x, REAL low, REAL high) {
    w = rk_fma(d, x, w);
#if BOUNDED
    w = rk_clip(w, low, high);
#endif
    return w;
}

// The weight after its chain; one that left the range of the type is computed again, and held after each sample.
__device__ __forceinline__ REAL held(REAL w, REAL before, int n_batch, int n_in, int n_out, int row, int col, REAL lr, const REAL *x,
                                     const REAL *d) {
#if !BOUNDED
    if (!(rk_abs(w) <= rk_largest((REAL)0))) {
        w = before;
        for (int s = 0; s < n_batch; ++s)
            w = rk_hold(rk_fma(rk_hold(-lr * d[(u64)s * n_out + row]), x[(u64)s * n_in + col], w));
    }
#endif
    return w;
}

#if FEW
#define THREADS 288  // a warp that adds, 8 that read
#define ROWS (32 / FEW)
#define DEPTH (512 / (int)sizeof(REAL))
#define FOURS (DEPTH / 32)  // fours of samples that a thread reads
#define CHAIN 16  // samples whose numbers are read before the first of them is used
#define PITCH (DEPTH + 4)  // rows of shared memory begin in different banks

struct Lines { REAL wide[32][PITCH], narrow[DEPTH]; };
struct __align__(16) Four { REAL v[4]; };

__device__ __forceinline__ void take(const Lines &lines, int lane, int k, REAL *a, REAL *b) {
#pragma unroll
    for (int i = 0; i < CHAIN; i += 4) {
        *(Four *)(a + i) = *(const Four *)&lines.wide[lane][k + i];
        *(Four *)(b + i) = *(const Four *)&lines.narrow[k + i];
    }
}
#else
#define THREADS 256
#define TILE 64
#define DEPTH 16
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
rank_update(int n_batch, int n_in, int n_out, REAL lr, const REAL *x, const REAL *d, const REAL *low, const REAL *high,
            REAL *weight, const int *status) {
    if (*status) return;  // the same for every thread of the launch
#if FEW
    // A block has 32 lines of d and one of x, or one of d and 32 of x.
    __shared__ __align__(16) Lines lines[2];
    const int t = threadIdx.x, lane = t % 32, reader = t / 32 - 1, col0 = blockIdx.x * FEW, row0 = blockIdx.y * ROWS;
    const int row = FEW == 1 ? row0 + lane : row0, col = FEW == 1 ? col0 : col0 + lane;
    const int n_wide = FEW == 1 ? n_out : n_in, n_narrow = FEW == 1 ? n_in : n_out;
    const bool inside = row < n_out && col < n_in, owns = t < 32 && inside;
    const REAL *from = FEW == 1 ? d + row : x + col, *other = FEW == 1 ? x + col : d + row;
    const u64 cell = owns ? (u64)row * n_in + col : 0;
    const REAL of_wide = FEW == 1 ? -lr : (REAL)1, of_narrow = FEW == 1 ? (REAL)1 : -lr;
    REAL w = weight[cell], lo = 0.0f, hi = 0.0f, single[2] = {};
    Four ahead[2][FOURS];  // of the next two stretches
    const REAL before = w;
#if BOUNDED
    lo = low[cell];
    hi = high[cell];
#endif
    auto read = [&](int first, Four *to, REAL &one) {
#pragma unroll
        for (int k = 0; k < FOURS; ++k) {
            int s = first + (k * 8 + reader) * 4;
#pragma unroll
            for (int i = 0; i < 4; ++i) to[k].v[i] = inside && s + i < n_batch ? from[(u64)(s + i) * n_wide] : 0.0f;
        }
        int s = first + t - 32;
        if (t - 32 < DEPTH && s < n_batch) one = other[(u64)s * n_narrow];
    };
    auto store = [&](Lines &to, const Four *of, REAL one) {
#pragma unroll
        for (int k = 0; k < FOURS; ++k) {
            Four four;
#pragma unroll
            for (int i = 0; i < 4; ++i) four.v[i] = rk_hold(of_wide * of[k].v[i]);
            *(Four *)&to.wide[lane][(k * 8 + reader) * 4] = four;
        }
        if (t - 32 < DEPTH) to.narrow[t - 32] = rk_hold(of_narrow * one);
    };
    if (reader >= 0) {
        read(0, ahead[1], single[1]);
        read(DEPTH, ahead[0], single[0]);
        store(lines[0], ahead[1], single[1]);
        read(2 * DEPTH, ahead[1], single[1]);
    }
    __syncthreads();
    for (int start = 0; start < n_batch; start += 2 * DEPTH) {
#pragma unroll
        for (int at = 0; at < 2; ++at) {
            const int first = start + at * DEPTH;
            if (reader >= 0) {
                store(lines[at ^ 1], ahead[at], single[at]);
                read(first + 3 * DEPTH, ahead[at], single[at]);
            } else if (first + DEPTH <= n_batch) {
                REAL a[2][CHAIN], b[2][CHAIN];
                take(lines[at], lane, 0, a[0], b[0]);
#pragma unroll
                for (int k = 0; k < DEPTH / CHAIN; ++k) {
                    if ((k + 1) * CHAIN < DEPTH) take(lines[at], lane, (k + 1) * CHAIN, a[(k + 1) % 2], b[(k + 1) % 2]);
#pragma unroll
                    for (int i = 0; i < CHAIN; ++i) w = rank_step(w, a[k % 2][i], b[k % 2][i], lo, hi);
                }
            } else {
                for (int k = 0; first + k < n_batch; ++k) w = rank_step(w, lines[at].wide[lane][k], lines[at].narrow[k], lo, hi);
            }
            __syncthreads();
        }
    }
    if (owns) weight[cell] = held(w, before, n_batch, n_in, n_out, row, col, lr, x, d);
#else
    __shared__ REAL xs[DEPTH][TILE], ds[DEPTH][TILE];
    int col0 = blockIdx.x * TILE, row0 = blockIdx.y * TILE, tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    REAL w[4][4], lo[4][4] = {}, hi[4][4] = {};
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
                for (int c = 0; c < 4; ++c) w[r][c] = rank_step(w[r][c], dr[r], xc[c], lo[r][c], hi[r][c]);
        }
    }
    for (int r = 0; r < 4; ++r)
        for (int c = 0; c < 4; ++c) {
            int row = row0 + ty * 4 + r, col = col0 + tx + 16 * c;
            if (row >= n_out || col >= n_in) continue;
            u64 cell = (u64)row * n_in + col;
            weight[cell] = held(w[r][c], weight[cell], n_batch, n_in, n_out, row, col, lr, x, d);
        }
#endif
}

// Flows of consecutive sum layers in one launch, for few samples: what sum_backward.cu adds to rows.
//
//   layer_tile (n_layer + 1) int: the first tile of each layer; arrived (1) u32: see rk_gate.cuh
//   tiles (n_tile, 4) i64: the first of OUTPUTS adjacent elements of the same lists, how many, the first
//   parent and how many
//   parents (n_parent, 4) i64: groups that the elements of a tile are in, ascending: weights of the first element, row, nodes;
//   one unused
//   element_rows (n_element, WIDTH) int: rows of the elements, -1 for none; no row is in two elements of a layer
//   theta: (child, node) for each group REAL; values (n_sample, n_row) double, row_flows likewise REAL
//
// Grid: as many blocks as find room at once, or fewer; the parts of a layer, (tile, SAMPLES samples), tiles first, go to the
// blocks in turn. A part is that of circuit_mix.cuh. While a block waits, it reads the description of its next part.
// ALONE: each layer is one tile; a block has the same samples in all layers.
// Macros: REAL, WIDTH, ALONE, VEC, OUTPUTS, LANES, SAMPLES (powers of two; COLUMNS * LANES a multiple of 32).
// mirror: rpukit/circuits/_mirror/passes.py::flows_down
// op: rpukit.circuits.ops.small_batch.flows_down
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: WIDTH=2 OUTPUTS=8 VEC=4
// check: WIDTH=2 OUTPUTS=16 SAMPLES=16 VEC=4
// check: REAL=double SAMPLES=4
// check: WIDTH=2 OUTPUTS=64 LANES=1 ALONE=1 VEC=4
// check: REAL=double OUTPUTS=32 LANES=1 ALONE=1
// source: docs/semantics/circuits.md, section 2.
#ifndef WIDTH
#define WIDTH 1
#endif
#define LIFT 0
#include "circuit_mix.cuh"
#include "circuit_own.cuh"

// The parents of element i of a tile.
struct Above {
    const i64 *parents;
    const REAL *theta;
    int i;
    __device__ __forceinline__ Parent operator()(i64 p) const {
        int size = (int)parents[p * 4 + 2];
        return Parent{theta + parents[p * 4] + (u64)i * size, (int)parents[p * 4 + 1], size};
    }
};

struct Part {
    int element, n_out, n_parent;
    i64 first;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
flows_down(int n_sample, int n_row, int first_layer, int end_layer, const int *layer_tile, u32 *arrived, const i64 *tiles,
           const i64 *parents, const int *element_rows, const REAL *theta, const double *values, REAL *row_flows) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ Staged staged;
    Area &area = *(Area *)raw;
    Gate gate(arrived);
    Held held;
    held.from = nullptr;
    Walk at(layer_tile, first_layer, end_layer, (n_sample + SAMPLES - 1) / SAMPLES);
    auto read = [&](const Walk &walk) {
        const i64 *t = tiles + (u64)walk.tile() * 4;
        return Part{(int)t[0], (int)t[1], (int)t[3], t[2]};
    };
    Above of{parents, theta, 0};
    Part now{};
    Parent above{};
    if (at.there()) now = read(at), above = of(now.first);
    int layer = first_layer;
    while (at.there()) {
        for (; layer < at.layer; ++layer) gate.close();
        int sample0 = at.across() * SAMPLES, samples = min(SAMPLES, n_sample - sample0);
        at.next();
        Part later = at.there() ? read(at) : now;
        Parent later_above;
        u64 line0 = (u64)sample0 * n_row;
        Lifts lifts{values + line0, nullptr, row_flows + line0, n_row, 0};
        int rows[PAIRS][WIDTH];
        double value[PAIRS];
        REAL flow[PAIRS][WIDTH];
#pragma unroll
        for (int x = 0; x < PAIRS * WIDTH; ++x) {
            int i = (threadIdx.x + x / WIDTH * THREADS) % OUTPUTS;
            rows[x / WIDTH][x % WIDTH] = element_rows[(u64)(now.element + min(i, now.n_out - 1)) * WIDTH + x % WIDTH];
        }
        auto also = [&] {
            later_above = of(later.first);
#pragma unroll
            for (int q = 0; q < PAIRS; ++q) {
                u64 line = line0 + (u64)min((int)(threadIdx.x + q * THREADS) / OUTPUTS, samples - 1) * n_row;
                value[q] = product_of(rows[q], values + line);
#pragma unroll
                for (int k = 0; k < WIDTH; ++k) flow[q][k] = row_flows[line + max(rows[q][k], 0)];
            }
        };
        Mixture mixture = begin_mixture(staged);
        for (int p = 0; p < now.n_parent; ++p) {
            Parent one = p ? of(now.first + p) : above;
            Lifts its = lifts;  // flow_of counts rows from 0
            its.row = one.row;
            int place[PLACES];
            find_places(place, 0, one.size, its);
            mix(mixture, staged, area, gate, held, samples, now.n_out, one.size, one.weights, one.size, 1, its, place, also);
        }
#pragma unroll
        for (int q = 0; q < PAIRS; ++q) {
            int p = threadIdx.x + q * THREADS, i = p % OUTPUTS, b = p / OUTPUTS;
            if (b >= samples || i >= now.n_out) continue;
            Above own{parents, theta, i};
            REAL f = flow_of(value[q], mixture.total[q], staged.largest[mixture.turn][b], own, now.first, now.n_parent, b, lifts);
#pragma unroll
            for (int k = 0; k < WIDTH; ++k)
                if (rows[q][k] >= 0) row_flows[line0 + (u64)b * n_row + rows[q][k]] = flow[q][k] + f;
        }
        __syncthreads();  // before shared memory is overwritten
        now = later, above = later_above;
    }
    for (; layer + 1 < end_layer; ++layer) gate.close();
}

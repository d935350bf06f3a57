// Log-values of consecutive sum layers in one launch, for few samples: the mixtures of sum_forward.cu.
//
//   layer_tile (n_layer + 1) int: the first tile of each layer; arrived (1) u32: see rk_gate.cuh
//   tiles (n_tile, 8) i64: of OUTPUTS sums first weight, first child, children, nodes of the group, row, sums; two unused
//   list_rows (children of all lists, WIDTH) int: their rows, -1 for none
//   theta: (child, node) for each group REAL; values (n_sample, n_row) double
//
// Grid: as many blocks as find room at once, or fewer; the parts of a layer, (tile, SAMPLES samples), tiles first, go to the
// blocks in turn. A part is that of circuit_mix.cuh. While a block waits, it reads what its next part is.
// ALONE: each layer is one tile; a block has the same samples in all layers.
// Macros: REAL, WIDTH, ALONE, OUTPUTS, LANES, SAMPLES (powers of two; COLUMNS * LANES a multiple of 32).
// mirror: rpukit/circuits/_mirror/passes.py::values_up
// op: rpukit.circuits.ops.small_batch.values_up
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: WIDTH=2 OUTPUTS=8
// check: WIDTH=2 OUTPUTS=16 SAMPLES=16
// check: REAL=double SAMPLES=4
// check: WIDTH=2 OUTPUTS=64 LANES=1 ALONE=1
// check: REAL=double OUTPUTS=32 LANES=1 ALONE=1
// source: docs/semantics/circuits.md, section 1.
#ifndef WIDTH
#define WIDTH 1
#endif
#include "circuit_mix.cuh"
#include "circuit_own.cuh"

struct Part {
    const REAL *weights;
    const int *rows;
    int n_child, size, row, n_out;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
values_up(int n_sample, int n_row, int first_layer, int end_layer, const int *layer_tile, u32 *arrived, const i64 *tiles,
          const int *list_rows, const REAL *theta, double *values) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ Staged staged;
    Area &area = *(Area *)raw;
    Gate gate(arrived);
    Held held;
    held.from = nullptr;
    Walk at(layer_tile, first_layer, end_layer, (n_sample + SAMPLES - 1) / SAMPLES);
    auto read = [&](const Walk &walk) {
        const i64 *t = tiles + (u64)walk.tile() * 8;
        return Part{theta + t[0], list_rows + t[1] * WIDTH, (int)t[2], (int)t[3], (int)t[4], (int)t[5]};
    };
    auto inputs = [&](const Part &part, int sample0) { return Inputs{part.rows, values + (u64)sample0 * n_row, n_row}; };
    Part now{};
    Place place[PLACES];
    if (at.there()) {
        now = read(at);
        find_places(place, 0, now.n_child, inputs(now, 0));
    }
    int layer = first_layer;
    while (at.there()) {
        for (; layer < at.layer; ++layer) gate.close();
        int sample0 = at.across() * SAMPLES, samples = min(SAMPLES, n_sample - sample0);
        at.next();
        Part later = at.there() ? read(at) : now;
        Place later_place[PLACES];
        Inputs input = inputs(now, sample0);
        Mixture mixture = begin_mixture(staged);
        mix(mixture, staged, area, gate, held, samples, now.n_out, now.n_child, now.weights, 1, now.size, input, place,
            [&] { find_places(later_place, 0, later.n_child, inputs(later, 0)); });
#pragma unroll
        for (int q = 0; q < PAIRS; ++q) {
            int p = threadIdx.x + q * THREADS, i = p % OUTPUTS, b = p / OUTPUTS;
            if (b >= samples || i >= now.n_out) continue;
            double v = value_of(mixture.total[q], staged.largest[mixture.turn][b], now.weights + i, now.size, now.n_child, b, input);
            values[(u64)(sample0 + b) * n_row + now.row + i] = v;
        }
        __syncthreads();  // before shared memory is overwritten
        now = later;
#pragma unroll
        for (int x = 0; x < PLACES; ++x) place[x] = later_place[x];
    }
    for (; layer + 1 < end_layer; ++layer) gate.close();
}

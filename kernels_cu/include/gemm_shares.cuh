// Equal shares of the stages of all sums, for det_gemm.cu with STREAM. Uses its macros.
#pragma once
#include "gemm_turns.cuh"

static_assert(CLUSTER == 1 && !ROOM && !COPIERS && TURNS != 1 && ADD < 2, "macros");

// What a block makes: from a cut in the pieces' stages up to the next one. A piece is a segment of a tile; those of a tile follow each
// other, so that short last ones do not come together. A share is not shorter than a piece, so that a piece is cut once at most: the
// block whose share ends there makes it first and passes its chains on, and the next block goes on with them at its end.
struct Shares {
    int block, tiles, n_segment, segment, k;
    int begin_piece, begin_stage, end_piece, end_stage;  // the cuts
    int tile, first, last;                               // of the part that is made: its tile and its terms
    u32 *ready;                                          // for this warp of each block: whether it has passed its chains on
    REAL *chains;

    __device__ __forceinline__ Shares(int block, int tiles, int k, int segment, u32 *turns, REAL *segments)
        : block(block), tiles(tiles), n_segment((k - 1) / segment + 1), segment(segment), k(k) {
        cut(block, begin_piece, begin_stage), cut(block + 1, end_piece, end_stage);
        ready = turns + 1 + (TURNS ? (BY_SHARES ? 2 : 1) * tiles * (THREADS / 32) : 0) + threadIdx.x / 32;
        chains = segments + (TURNS ? (u64)tiles * n_segment * (TILE_M * TILE_N) : 0) + threadIdx.x;
    }
    // Stages of a segment.
    __device__ __forceinline__ int stages(int number) const { return (min(segment, k - number * segment) + TILE_K - 1) / TILE_K; }
    // Where a share begins. Pieces are cut at 16 places at most.
    __device__ __forceinline__ void cut(int share, int &piece, int &stage) const {
        int whole = stages(0), each = whole * (n_segment - 1) + stages(n_segment - 1);  // of a tile
        i64 at = (i64)tiles * each * share / gridDim.x;
        int rest = (int)(at % each), number = min(rest / whole, n_segment - 1), unit = (stages(number) + 15) / 16;
        piece = (int)(at / each) * n_segment + number, stage = (rest - number * whole) / unit * unit;
    }
    // Number of parts.
    __device__ __forceinline__ int count() const { return end_piece - begin_piece + (end_stage > 0); }
    __device__ __forceinline__ void begin(int part) {
        if (part) __syncthreads();  // the stages are read
        bool passes = end_stage > 0 && part == 0, takes = begin_stage > 0 && part == count() - 1;
        int piece = passes ? end_piece : takes ? begin_piece : begin_piece + (begin_stage > 0) + part - (end_stage > 0);
        int from = piece % n_segment * segment;
        tile = piece / n_segment, first = from + (takes ? begin_stage * TILE_K : 0);
        last = passes ? from + end_stage * TILE_K : min(k, from + segment);
    }
    // The chains of the block before, or those that begin.
    __device__ __forceinline__ void take(REAL (&acc)[RM][RN]) const {
#pragma unroll
        for (int x = 0; x < RM * RN; ++x) acc[x / RN][x % RN] = 0;
        if (!(first & (segment - 1))) return;
        u32 *there = ready + (block - 1) * (THREADS / 32);
        wait_for(there, 1);
#pragma unroll
        for (int x = 0; x < RM * RN; ++x) acc[x / RN][x % RN] = from_l2(chains + (u64)(block - 1) * (TILE_M * TILE_N) + x * THREADS);
        __syncwarp();
        if (threadIdx.x % 32 == 0) *there = 0;
    }
    // Whether the part ends with its segment.
    __device__ __forceinline__ bool ends() const { return last == k || !(last & (segment - 1)); }
    // Pass chains on, if it does not.
    __device__ __forceinline__ void pass(const REAL (&acc)[RM][RN]) const {
        if (ends()) return;
#pragma unroll
        for (int x = 0; x < RM * RN; ++x) chains[(u64)block * (TILE_M * TILE_N) + x * THREADS] = acc[x / RN][x % RN];
        say(ready + block * (THREADS / 32), 1);
    }
};

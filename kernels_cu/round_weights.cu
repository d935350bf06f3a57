// Round the weights of sums to bfloat16, ties to even, for tensor_forward.cu and tensor_backward.cu.
//
//   theta float32, words u16 (bits): block k of weights is (n_child, n_node), from block_theta[k] on, and in words, with lines
//   of n_node rounded up to a multiple of 8, from block_words[k] on; its sizes are those of its first use, block_use[k]
//   tile_block (n_tile), tile_place (n_tile, 2) int: 64 children x 64 nodes of a block
//
//   SPLIT: what rounding leaves is rounded likewise, and follows after `apart` words
//
// Grid: n_tile; a thread takes pairs of nodes. What fills up lines is 0.
// Macro: SPLIT.
// mirror: rpukit/circuits/_mirror/tensor.py::round_weights
// op: rpukit.circuits.ops.sum_tensor_core.round_weights
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: SPLIT=1
// source: docs/semantics/circuits.md, sections 5 and 6.
#include "circuit_split.cuh"

extern "C" __global__ void __launch_bounds__(256)
round_weights(const i64 *block_theta, const i64 *block_words, const int *block_use, const int *use_size, const int *use_count,
              const int *tile_block, const int *tile_place, const float *theta, i64 apart, u16 *words) {
    int k = tile_block[blockIdx.x], c0 = tile_place[2 * blockIdx.x], m0 = tile_place[2 * blockIdx.x + 1];
    int size = use_size[block_use[k]], count = use_count[block_use[k]], line = (size + 7) / 8 * 8;
#pragma unroll
    for (int x = threadIdx.x; x < 64 * 32; x += 256) {
        int c = c0 + x / 32, m = m0 + x % 32 * 2;
        if (c >= count || m >= line) continue;
        const float *from = theta + block_theta[k] + (u64)c * size;
        float low = m < size ? from[m] : 0.0f, high = m + 1 < size ? from[m + 1] : 0.0f;
        u16 *to = words + block_words[k] + (u64)c * line + m;
        u32 pair = rk_pack16(low, high);
        *(u32 *)to = pair;
        if (SPLIT) *(u32 *)(to + apart) = rk_pack_rest(pair, low, high);
    }
}

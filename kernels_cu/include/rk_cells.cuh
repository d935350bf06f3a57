// Numbers of cells in their tile, of which a kernel may have some rows or some columns: draws have them.
#pragma once

// Number of cell i. The first one is number `first`; with some columns of a tile, `width` of them, `pitch` is the
// length of the tile's rows; with whole rows it is 0.
__device__ __forceinline__ unsigned long long rk_cell(unsigned long long first, unsigned long long i, int width, int pitch) {
    return pitch ? first + i / width * pitch + i % width : first + i;
}

// Common parts of input and output tiles of an analog product. Mirror: rpukit/tiled/_mirror/analog.py.
#pragma once
#include "rk_periphery.cuh"

// The scale of a sample in a round (`second`: that of the worst case), and whether its output is 0 whatever the weights.
__device__ __forceinline__ float scale_in_round(const float *io, const float *alpha, i64 n, i64 s, bool second, bool &nothing) {
    float a = io[13] != 0.0f ? alpha[second ? n + s : s] : 1.0f;
    nothing = !(a > 0.0f) && io[14] != 0.0f;
    return a;
}

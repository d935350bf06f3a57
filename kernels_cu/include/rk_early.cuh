// Programmatic dependent launch: a launch begins while the previous one ends; from compute capability 9.0 on.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define RK_EARLY(instruction) asm volatile(instruction ::: "memory")
#else
#define RK_EARLY(instruction)
#endif

// Wait until all that was launched earlier is done and its results can be read.
__device__ __forceinline__ void rk_wait_for_earlier() { RK_EARLY("griddepcontrol.wait;"); }
// Let the next launch begin, when all blocks have said so.
__device__ __forceinline__ void rk_let_later_begin() { RK_EARLY("griddepcontrol.launch_dependents;"); }

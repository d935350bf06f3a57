// Check whether an array is finite: where it is not, status[0] becomes `call` (if it was 0).
//
//   x (n)   REAL; status (1)   int32
//
// A grid-stride loop; all threads store the same value, so the order of stores does not matter. Macro: REAL.
// mirror: rpukit/analog/_mirror/guard.py::check_finite
// op: rpukit.analog.deferred_errors.check_finite
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: the deferred check of inputs, docs/semantics.md.
#include "rk_real.cuh"

extern "C" __global__ void __launch_bounds__(256)
check_finite(u64 n, int call, const REAL *x, int *status) {
    bool finite = true;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += (u64)gridDim.x * 256)
        finite = finite && rk_abs(x[i]) <= rk_largest(x[i]);
    if (!finite) atomicCAS(status, 0, call);
}

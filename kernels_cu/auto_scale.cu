// Scale the learning rate of the fast array by running maxima of |x| and |d|.
//
// For each sample in order, with v its maximum and m the running one: m = v where m is not positive, else
// m = (1 - t) m + t v where v is positive. rate = factor / (m_x m_d), or factor where one of them is 0.
//
//   maxima (2, n_batch)   REAL, the largest |x| and |d| of each sample
//   running (2)           REAL, m_x and m_d, changed in place
//   rates (n_batch)       REAL
//   status (1)            not zero: do nothing
//
// One thread, samples ascending. Macro: REAL.
// mirror: rpukit/analog/_mirror/transfer.py::auto_scale
// op: rpukit.analog.transfer.ops.auto_scale
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double
// source: Rasch et al., Nature Communications 15:7133 (2024), auto scaling of the fast learning rate.
#include "rk_real.cuh"

__device__ __forceinline__ REAL followed(REAL m, REAL v, REAL t) {
    if (!(m > 0.0f)) return v;
    return v > 0.0f ? rk_fma(t, v, ((REAL)1 - t) * m) : m;
}

extern "C" __global__ void __launch_bounds__(1)
auto_scale(int n_batch, REAL factor, REAL t, const REAL *maxima, REAL *running, REAL *rates, const int *status) {
    if (*status) return;
    REAL m_x = running[0], m_d = running[1];
    for (int s = 0; s < n_batch; ++s) {
        m_x = followed(m_x, maxima[s], t);
        m_d = followed(m_d, maxima[n_batch + s], t);
        rates[s] = m_x > 0.0f && m_d > 0.0f ? factor / (m_x * m_d) : factor;
    }
    running[0] = m_x;
    running[1] = m_d;
}

// Follow the largest |x| and |d| of the samples, and scale the rate of the fast array by them.
//
// For each sample in order, with v its maximum and m the running one: m = v where m is not positive, else
// m = (1 - t) m + t v where v is positive. rate = factor / (m_x m_d), or factor where one of them is 0.
//
//   x_max, d_max (n_batch)   float32, the largest |x| and |d| of each sample
//   running (2)              float32, m_x and m_d, changed in place
//   rates (n_batch)          float32
//   status (1)               not zero: do nothing
//
// One thread, samples ascending.
// mirror: rpukit/analog/_mirror/transfer.py::auto_scale
// op: rpukit.analog.transfer.auto_scale
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: Rasch et al., Nature Communications 15:7133 (2024), auto scaling of the fast learning rate.
#include "rk_types.cuh"

__device__ __forceinline__ float followed(float m, float v, float t) {
    if (!(m > 0.0f)) return v;
    return v > 0.0f ? __fmaf_rn(t, v, (1.0f - t) * m) : m;
}

extern "C" __global__ void __launch_bounds__(1)
auto_scale(int n_batch, float factor, float t, const float *x_max, const float *d_max, float *running, float *rates,
           const int *status) {
    if (*status) return;
    float m_x = running[0], m_d = running[1];
    for (int s = 0; s < n_batch; ++s) {
        m_x = followed(m_x, x_max[s], t);
        m_d = followed(m_d, d_max[s], t);
        rates[s] = m_x > 0.0f && m_d > 0.0f ? factor / (m_x * m_d) : factor;
    }
    running[0] = m_x;
    running[1] = m_d;
}

// Softmax cross-entropy loss and its gradient with respect to the logits.
//
//   z = logits[s, :], m = max z, e_k = exp(z_k - m), sum = ((e_0 + e_1) + e_2) + ...
//   loss[s] = (log(sum) + m) - z[label],  gradient[s, k] = e_k / sum - (k == label)
//
//   logits, gradient (n_batch, n_class) float32, labels (n_batch) int32, loss (n_batch) float32
//   A label outside [0, n_class) gives a loss and a gradient of NaN for its row.
//
// One thread a row, classes ascending.
// mirror: rpukit/elementwise/_mirror.py::softmax_cross_entropy
// op: rpukit.elementwise.softmax_cross_entropy
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// source: the usual loss of a classifier.
#include "rk_math.cuh"

extern "C" __global__ void __launch_bounds__(128)
softmax_cross_entropy(int n_batch, int n_class, const float *logits, const int *labels, float *loss, float *gradient) {
    int s = blockIdx.x * 128 + threadIdx.x;
    if (s >= n_batch) return;
    const float *z = logits + (u64)s * n_class;
    float *g = gradient + (u64)s * n_class;
    int label = labels[s];
    float m = z[0], sum = 0.0f;
    for (int k = 1; k < n_class; ++k) m = z[k] > m ? z[k] : m;
    for (int k = 0; k < n_class; ++k) {
        float e = rk_exp(z[k] - m);
        g[k] = e;
        sum += e;
    }
    bool known = label >= 0 && label < n_class;
    for (int k = 0; k < n_class; ++k) g[k] = known ? g[k] / sum - (k == label ? 1.0f : 0.0f) : RK_NAN;
    loss[s] = known ? rk_log(sum) + m - z[label] : RK_NAN;
}

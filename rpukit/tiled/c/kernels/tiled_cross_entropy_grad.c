/* Weight (exp(logprob) - onehot) / total, without exp for the gradient of the log-probabilities. */
void tiled_cross_entropy_grad(const int32_t *n, const float *s, const float *logprob, const int64_t *labels, float *y,
                              const float *weights, const float *total_weight) {
    for (int32_t e = 0; e < n[0] * n[1]; e++) {
        int32_t i = e / n[1];
        float v = (n[6] ? 0.0f : exact_exp(logprob[e])) - (n[2] + e % n[1] == labels[i] ? 1.0f : 0.0f);
        if (n[4]) v = weights[i] * v;
        v = 0 <= labels[i] && labels[i] < n[3] ? v / (n[5] ? *total_weight : s[0]) : EXACT_NAN;
        y[e] = n[4] && weights[i] == 0.0f ? 0.0f : v;
    }
}

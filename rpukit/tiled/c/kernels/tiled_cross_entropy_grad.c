/* (exp(logprob) - onehot) / number of samples. */
void tiled_cross_entropy_grad(const int32_t *n, const float *s, const float *logprob, const int64_t *labels, float *y) {
    for (int32_t e = 0; e < n[0] * n[1]; e++) {
        int64_t label = labels[e / n[1]];
        float hot = n[2] + e % n[1] == label ? 1.0f : 0.0f;
        y[e] = 0 <= label && label < n[3] ? (exact_exp(logprob[e]) - hot) / s[0] : EXACT_NAN;
    }
}

/* Mean negative log-likelihood of labels, samples ascending; a label out of range gives NaN, a weight of 0 leaves out. */
void tiled_nll(const int32_t *n, const float *s, const float *logprob, const int64_t *labels, float *loss,
               const float *weights, const float *total_weight) {
    float total = n[3] ? 0.0f : *loss;
    for (int32_t i = 0; i < n[1]; i++) {
        float p = 0 <= labels[i] && labels[i] < n[2] ? logprob[i * n[2] + labels[i]] : EXACT_NAN;
        if (!n[5]) total -= p;
        else if (weights[i] != 0.0f) total = fmaf(-weights[i], p, total);
    }
    *loss = n[4] ? total / (n[6] ? *total_weight : s[0]) : total;
}

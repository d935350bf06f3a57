/* Mean negative log-likelihood of labels, samples ascending; a label out of range gives NaN. */
void tiled_nll(const int32_t *n, const float *s, const float *logprob, const int64_t *labels, float *loss) {
    float total = n[3] ? 0.0f : *loss;
    for (int32_t i = 0; i < n[1]; i++)
        total -= 0 <= labels[i] && labels[i] < n[2] ? logprob[i * n[2] + labels[i]] : EXACT_NAN;
    *loss = n[4] ? total / s[0] : total;
}

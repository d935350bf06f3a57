/* Weights of samples: that of the label's class, 0 for the class to ignore, NaN for a label out of range. */
void tiled_label_weights(const int32_t *n, const int64_t *labels, const float *weights, float *y) {
    for (int32_t i = 0; i < n[0]; i++) {
        float v = EXACT_NAN;
        if (0 <= labels[i] && labels[i] < n[1]) v = n[2] ? weights[labels[i]] : 1.0f;
        y[i] = n[3] && labels[i] == n[4] ? 0.0f : v;
    }
}

/* Softmax along an axis, or its logarithm. */
void tiled_softmax(const int32_t *n, const float *x, float *y) {
    for (int32_t row = 0; row < n[0]; row++) {
        int32_t p = row / n[3] * n[2] * n[3] + row % n[3], end = p + n[2] * n[3], step = n[3];
        float top = x[p], total = 0.0f;
        for (int32_t k = p; k < end; k += step) top = x[k] > top ? x[k] : top;
        for (int32_t k = p; k < end; k += step) {
            y[k] = exact_exp(x[k] - top);
            total += y[k];
        }
        float size = n[1] ? exact_log(total) : total;
        for (int32_t k = p; k < end; k += step) y[k] = n[1] ? x[k] - top - size : y[k] / size;
    }
}

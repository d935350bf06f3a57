/* Gradient of softmax, y (dy - sum dy y), or of its logarithm, dy - exp(y) sum dy. */
void tiled_softmax_grad(const int32_t *n, const float *dy, const float *y, float *dx) {
    for (int32_t row = 0; row < n[0]; row++) {
        int32_t p = row / n[3] * n[2] * n[3] + row % n[3], end = p + n[2] * n[3];
        float s = 0.0f;
        if (n[1] == 1) {
            for (int32_t k = p; k < end; k += n[3]) s += dy[k];
            for (int32_t k = p; k < end; k += n[3]) dx[k] = fmaf(-exact_exp(y[k]), s, dy[k]);
            continue;
        }
        for (int32_t k = p; k < end; k += n[3]) s = fmaf(dy[k], y[k], s);
        for (int32_t k = p; k < end; k += n[3]) dx[k] = y[k] * (dy[k] - s);
    }
}

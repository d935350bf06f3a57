/* Gradient of softmax: y (dy - sum dy y). */
void tiled_softmax_grad(const int32_t *n, const float *dy, const float *y, float *dx) {
    for (int32_t row = 0; row < n[0]; row++) {
        int32_t p = row / n[3] * n[2] * n[3] + row % n[3], end = p + n[2] * n[3];
        float s = 0.0f;
        for (int32_t k = p; k < end; k += n[3]) s = fmaf(dy[k], y[k], s);
        for (int32_t k = p; k < end; k += n[3]) dx[k] = y[k] * (dy[k] - s);
    }
}

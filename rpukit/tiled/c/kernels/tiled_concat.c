/* Tensors side by side along an axis, zeros between them. */
void tiled_concat(const int32_t *n, const float *a, const float *b, const float *c, const float *d, const float *e,
                  const float *f, const float *g, float *y) {
    const float *parts[7] = {a, b, c, d, e, f, g};
    int32_t size = n[2] * n[3];
    for (int32_t row = 0; row < n[0]; row++, y += size) {
        for (int32_t i = 0; i < size; i++) y[i] = 0.0f;
        for (int32_t k = 0; k < n[1]; k++) {
            int32_t part = n[5 + 2 * k] * n[3];
            for (int32_t i = 0; i < part; i++) y[n[4 + 2 * k] * n[3] + i] = parts[k][row * part + i];
        }
    }
}

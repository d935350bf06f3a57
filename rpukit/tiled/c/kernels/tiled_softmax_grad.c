/* Gradient of softmax, y (dy - sum dy y), or of its logarithm, dy - exp(y) sum dy. */
typedef struct {
    int32_t rows, logarithm, length, inner, unused[2];
    float epsilon;
} tiled_softmax_grad_t;

void tiled_softmax_grad(team_t team, const tiled_softmax_grad_t *n, const float *dy, const float *y, float *dx) {
    share_t own = share(team, n->rows);
    int32_t step = n->inner, size = n->length * step;
    for (int32_t row = own.begin; row < own.end; row++) {
        int32_t p = row / step * size + row % step, end = p + size;
        float s = 0.0f;
        if (n->logarithm) {
            for (int32_t k = p; k < end; k += step) s += dy[k];
            for (int32_t k = p; k < end; k += step) dx[k] = fma32(-exact_exp(y[k]), s, dy[k]);
            continue;
        }
        for (int32_t k = p; k < end; k += step) s = fma32(dy[k], y[k], s);
        for (int32_t k = p; k < end; k += step) dx[k] = y[k] * (dy[k] - s);
    }
}

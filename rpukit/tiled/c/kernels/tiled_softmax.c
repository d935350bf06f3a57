/* Softmax along an axis, or its logarithm. */
typedef struct {
    int32_t rows, logarithm, length, inner, unused[2];
    float epsilon;
} tiled_softmax_t;

void tiled_softmax(team_t team, const tiled_softmax_t *n, const float *x, float *y) {
    share_t own = share(team, n->rows);
    int32_t step = n->inner, size = n->length * step;
    for (int32_t row = own.begin; row < own.end; row++) {
        int32_t p = row / step * size + row % step, end = p + size;
        float top = x[p], total = 0.0f;
        for (int32_t k = p; k < end; k += step) top = x[k] > top ? x[k] : top;
        for (int32_t k = p; k < end; k += step) {
            float e = exact_exp(x[k] - top);
            if (!n->logarithm) y[k] = e;
            total += e;
        }
        float scale = n->logarithm ? exact_log(total) : total;
        for (int32_t k = p; k < end; k += step) y[k] = n->logarithm ? x[k] - top - scale : y[k] / scale;
    }
}

/* Sums of the rows of dy by their indices, samples ascending. */
typedef struct {
    int32_t rows, width, begin, samples, first;
} tiled_scatter_rows_t;

void tiled_scatter_rows(team_t team, const tiled_scatter_rows_t *n, const float *dy, const int64_t *indices, float *y) {
    share_t own = share(team, n->rows);
    if (n->first)
        for (int64_t j = (int64_t)own.begin * n->width; j < (int64_t)own.end * n->width; j++) y[j] = 0.0f;
    for (int32_t i = 0; i < n->samples; i++) {
        int64_t k = indices[i] - n->begin;
        if (own.begin > k || k >= own.end) continue;
        for (int32_t j = 0; j < n->width; j++) y[k * n->width + j] += dy[(int64_t)i * n->width + j];
    }
}

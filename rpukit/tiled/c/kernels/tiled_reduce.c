/* Sum over axes: of elements (kind 0, mean 1), squares of differences (2, 4), or products with normalised elements (3).
 * The innermost axis is summed first, then the sums of its rows. */
typedef struct {
    int32_t rows, kind, first, last;
    int32_t free[4], sum[4]; /* lengths of the axes that stay, and of those that are summed */
    int32_t stride[40];      /* over these eight axes: of each of four inputs, then of the result */
    float count, epsilon;
} tiled_reduce_t;

typedef struct { const float *a, *b, *c, *d; } reduce_row_t;

static inline float reduce_row(const tiled_reduce_t *n, reduce_row_t p) {
    int32_t a = n->stride[7], b = n->stride[15], c = n->stride[23], d = n->stride[31], left = n->sum[3];
    float part = 0.0f;
    if (n->kind < 2)
        for (; left > 0; left--, p.a += a) part += *p.a;
    else if (n->kind == 3)
        for (; left > 0; left--, p.a += a, p.b += b, p.c += c, p.d += d)
            part = fma32(*p.a, (*p.b - *p.c) * *p.d, part);
    else
        for (; left > 0; left--, p.a += a, p.b += b) part = fma32(*p.a - *p.b, *p.a - *p.b, part);
    return part;
}

void tiled_reduce(team_t team, const tiled_reduce_t *n, const float *a, const float *b, const float *c, const float *d,
                  float *y) {
    share_t own = share(team, n->rows);
    const float *in[4] = {a, b, c, d};
    int n_in = n->kind < 2 ? 1 : n->kind == 3 ? 4 : 2;
    for (int32_t row = own.begin; row < own.end; row++) {
        int32_t i3 = row % n->free[3], rest = row / n->free[3], i2 = rest % n->free[2];
        int32_t i1 = rest / n->free[2] % n->free[1], i0 = rest / n->free[2] / n->free[1], p[5];
        for (int k = 0; k < 5; k++) p[k] = PLACE(n->stride + 8 * k, i0, i1, i2, i3);
        float total = n->first ? 0.0f : y[p[4]];
        for (int32_t j0 = 0; j0 < n->sum[0]; j0++)
            for (int32_t j1 = 0; j1 < n->sum[1]; j1++) {
                const float *at[4] = {0};
                for (int k = 0; k < n_in; k++) at[k] = in[k] + p[k] + PLACE(n->stride + 8 * k + 4, j0, j1, 0, 0);
                for (int32_t j2 = n->sum[2]; j2 > 0; j2--) {
                    total += reduce_row(n, (reduce_row_t){at[0], at[1], at[2], at[3]});
                    for (int k = 0; k < n_in; k++) at[k] += n->stride[8 * k + 6];
                }
            }
        if (n->last && n->kind != 0 && n->kind != 3) {
            total /= n->count;
            if (n->kind == 2) total = 1.0f / exact_sqrt(total + n->epsilon);
        }
        y[p[4]] = total;
    }
}

/* Fused chains of elementwise ops of up to eight inputs and four results; each chain has a loop of its own. */
typedef struct {
    int32_t rows, chain, size[4];
    int32_t stride[48]; /* over the four axes: of each of eight inputs, then of each of four results */
    float constant[8];
} tiled_fused_t;

static void fused_row(const tiled_fused_t *n, int32_t count, const float *const *p, float *const *q) {
    switch (n->chain) {
    default: break;
    }
}

void tiled_fused(team_t team, const tiled_fused_t *n, const float *a, const float *b, const float *c, const float *d,
                 const float *e, const float *f, const float *g, const float *h, float *y, float *z, float *v,
                 float *w) {
    const float *in[8] = {a, b, c, d, e, f, g, h}, *p[8] = {0};
    float *out[4] = {y, z, v, w}, *q[4] = {0};
    share_t own = share(team, n->rows * n->size[3]); /* of elements, since there is often one row */
    if (own.begin >= own.end) return;
    int32_t left = own.end - own.begin, i = own.begin % n->size[3], row = own.begin / n->size[3];
    int32_t i2 = row % n->size[2], i1 = row / n->size[2] % n->size[1], i0 = row / n->size[2] / n->size[1];
    for (; left > 0; i = 0) {
        int32_t count = n->size[3] - i < left ? n->size[3] - i : left;
        for (int k = 0; k < 8 && in[k]; k++) p[k] = in[k] + PLACE(n->stride + 4 * k, i0, i1, i2, i);
        for (int k = 0; k < 4 && out[k]; k++) q[k] = out[k] + PLACE(n->stride + 32 + 4 * k, i0, i1, i2, i);
        fused_row(n, count, p, q);
        left -= count;
        if (++i2 == n->size[2]) i2 = 0, i1++;
        if (i1 == n->size[1]) i1 = 0, i0++;
    }
}

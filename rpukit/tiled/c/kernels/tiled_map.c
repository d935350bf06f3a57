/* Elementwise ops of up to seven inputs, which may stand still along axes. */
typedef struct {
    int32_t rows, kind, size[4];
    int32_t stride[32]; /* over the four axes: of each of seven inputs, then of the result */
    float by, to;
} tiled_map_t;

/* One loop for each kind, of which generated code has those that the network uses. */
#define EACH(value) \
    for (int32_t i = 0; i < count; i++, a += sa, b += sb, y += sy) { \
        const float u = *a, v = *b; \
        (void)u, (void)v, *y = value; \
    } \
    break
#define MORE(k) p[k][i * step[k]]

static void map_row(const tiled_map_t *n, int32_t count, const float *const *p, float *y) {
    const float *a = p[0], *b = p[1] ? p[1] : a, by = n->by, to = n->to;
    const int32_t sa = n->stride[3], sb = p[1] ? n->stride[7] : sa, sy = n->stride[31];
    int32_t step[7];
    for (int k = 2; k < 7; k++) step[k] = n->stride[4 * k + 3];
    (void)by, (void)to, (void)step;
    switch (n->kind) {
    case 0: EACH(u);
    case 1: EACH(u + v);
    case 2: EACH(u - v);
    case 3: EACH(u * v);
    case 4: EACH(u / v);
    case 5: EACH(u / by);
    case 6: EACH(u > 0.0f ? u : 0.0f);
    case 7: EACH(v > 0.0f ? u : 0.0f);
    case 8: EACH(u * map_phi(u));
    case 9: EACH(u * fma32(v, 0.3989422804014327f * exact_exp(-0.5f * v * v), map_phi(v)));
    case 10: EACH(exact_tanh(u));
    case 11: EACH(u * fma32(-v, v, 1.0f));
    case 12: EACH(exact_sigmoid(u));
    case 13: EACH(u * (v * (1.0f - v)));
    case 14: EACH(((u - v) + (u - v)) / by);
    case 15: EACH(fma32((u - v) * MORE(2), MORE(3), MORE(4)));
    case 16: EACH(MORE(2) * MORE(4) / by * fma32(-((v - MORE(3)) * MORE(4)), MORE(5), by * u - MORE(6)));
    case 17: EACH(map_between(u, by, to));
    case 18: EACH(u < 0.0f ? by * u : u);
    case 19: EACH(map_between(fma32(by, u, to), 0.0f, 1.0f));
    case 20: EACH(u * map_between(fma32(u, 0.16666666666666666f, 0.5f), 0.0f, 1.0f));
    case 21: EACH(exact_sqrt(u));
    case 22: EACH(exact_exp(u));
    case 23: EACH(exact_log(u));
    case 24: EACH(exact_erf(u));
    case 25: EACH(map_power(u, by, to));
    case 26: EACH(by < v && v < to ? u : 0.0f);
    case 27: EACH(v > 0.0f ? u : by * u);
    case 28: EACH(0.0f < v && v < 1.0f ? u * by : 0.0f);
    case 29: EACH(map_hard_swish_grad(u, v));
    case 30: EACH(u * (1.1283791670955126f * exact_exp(-(v * v))));
    default: break;
    }
}

void tiled_map(team_t team, const tiled_map_t *n, const float *a, const float *b, const float *c, const float *d,
               const float *e, const float *f, const float *g, float *y) {
    const float *in[7] = {a, b, c, d, e, f, g}, *p[7] = {0};
    share_t own = share(team, n->rows * n->size[3]); /* of elements, since a map often has one row */
    if (own.begin >= own.end) return;
    int32_t left = own.end - own.begin, i = own.begin % n->size[3], row = own.begin / n->size[3];
    int32_t i2 = row % n->size[2], i1 = row / n->size[2] % n->size[1], i0 = row / n->size[2] / n->size[1];
    for (; left > 0; i = 0) {
        int32_t count = n->size[3] - i < left ? n->size[3] - i : left;
        for (int k = 0; k < 7 && in[k]; k++) p[k] = in[k] + PLACE(n->stride + 4 * k, i0, i1, i2, i);
        map_row(n, count, p, y + PLACE(n->stride + 28, i0, i1, i2, i));
        left -= count;
        if (++i2 == n->size[2]) i2 = 0, i1++;
        if (i1 == n->size[1]) i1 = 0, i0++;
    }
}

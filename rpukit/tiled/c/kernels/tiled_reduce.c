/* Sum over axes: of elements, squares of differences, or products with normalised elements. The
 * innermost axis is summed first, then the sums of its rows. */
static int32_t place(const int32_t *steps, const int32_t *at) {
    return at[0] * steps[0] + at[1] * steps[1] + at[2] * steps[2] + at[3] * steps[3];
}

void tiled_reduce(const int32_t *n, const float *s, const float *a, const float *b, const float *c, const float *d,
                  float *y) {
    const int32_t kind = n[1], *f = n + 4, *m = n + 8, *steps = n + 12;
    for (int32_t row = 0; row < n[0]; row++) {
        int32_t at[4] = {row / (f[1] * f[2] * f[3]), row / (f[2] * f[3]) % f[1], row / f[3] % f[2], row % f[3]};
        int32_t p[5];
        for (int k = 0; k < 5; k++) p[k] = place(steps + 8 * k, at);
        float total = n[2] ? 0.0f : y[p[4]];
        for (int32_t j = 0; j < m[0] * m[1] * m[2]; j++) {
            int32_t in[4] = {j / (m[1] * m[2]), j / m[2] % m[1], j % m[2], 0}, q[4];
            for (int k = 0; k < 4; k++) q[k] = p[k] + place(steps + 8 * k + 4, in);
            float part = 0.0f;
            for (int32_t i = 0; i < m[3]; i++) {
                float v = a[q[0] + i * steps[7]];
                if (kind < 2) {
                    part += v;
                } else if (kind == 3) {
                    float h = (b[q[1] + i * steps[15]] - c[q[2] + i * steps[23]]) * d[q[3] + i * steps[31]];
                    part = fmaf(v, h, part);
                } else {
                    v -= b[q[1] + i * steps[15]];
                    part = fmaf(v, v, part);
                }
            }
            total += part;
        }
        if (n[3] && kind != 0 && kind != 3) {
            total /= s[0];
            if (kind == 2) total = 1.0f / exact_sqrt(total + s[1]);
        }
        y[p[4]] = total;
    }
}

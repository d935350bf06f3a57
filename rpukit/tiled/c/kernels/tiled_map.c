/* Elementwise ops of up to seven inputs, which may stand still along axes. */
static float phi(float x) { return 0.5f * (1.0f + exact_erf(x * 0.7071067811865476f)); }

void tiled_map(const int32_t *n, const float *s, const float *a, const float *b, const float *c, const float *d,
               const float *e, const float *f, const float *g, float *y) {
    const float by = s[0];
    for (int32_t at = 0; at < n[0] * n[5]; at++) {
        int32_t row = at / n[5], i[4] = {row / (n[3] * n[4]), row / n[4] % n[3], row % n[4], at % n[5]}, p[8];
        for (int k = 0; k < 8; k++) {
            const int32_t *steps = n + 6 + 4 * k;
            p[k] = i[0] * steps[0] + i[1] * steps[1] + i[2] * steps[2] + i[3] * steps[3];
        }
        float u = a[p[0]], v = b ? b[p[1]] : 0.0f, *out = y + p[7];
        switch (n[1]) {
        case 0: *out = u; break;
        case 1: *out = u + v; break;
        case 2: *out = u - v; break;
        case 3: *out = u * v; break;
        case 4: *out = u / v; break;
        case 5: *out = u / by; break;
        case 6: *out = u > 0.0f ? u : 0.0f; break;
        case 7: *out = v > 0.0f ? u : 0.0f; break;
        case 8: *out = u * phi(u); break;
        case 9: *out = u * fmaf(v, 0.3989422804014327f * exact_exp(-0.5f * v * v), phi(v)); break;
        case 10: *out = exact_tanh(u); break;
        case 11: *out = u * fmaf(-v, v, 1.0f); break;
        case 12: *out = exact_sigmoid(u); break;
        case 13: *out = u * (v * (1.0f - v)); break;
        case 14: *out = ((u - v) + (u - v)) / by; break;
        case 15: *out = fmaf((u - v) * c[p[2]], d[p[3]], e[p[4]]); break;
        default: { /* gradient of a normalised element: dy, x, scale, mean, inv_std, dscale, dbias */
            float h = (v - d[p[3]]) * e[p[4]];
            *out = c[p[2]] * e[p[4]] / by * fmaf(-h, f[p[5]], by * u - g[p[6]]);
        }
        }
    }
}

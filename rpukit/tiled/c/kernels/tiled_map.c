/* Elementwise ops of up to seven inputs, which may stand still along axes. */
static float phi(float x) { return 0.5f * (1.0f + exact_erf(x * 0.7071067811865476f)); }

static float between(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* Power of a whole exponent, of the root of the base where `root` is 1. */
static float power(float a, float exponent, float root) {
    float r = 1.0f;
    if (root > 0.0f) a = exact_sqrt(a);
    for (int32_t k = (int32_t)exact_abs(exponent); k > 0; k >>= 1, a = a * a)
        if (k & 1) r = r * a;
    return exponent < 0.0f ? 1.0f / r : r;
}

static float hard_swish_grad(float dy, float x) {
    if (x <= -3.0f) return 0.0f;
    return x >= 3.0f ? dy : dy * fmaf(x, 0.3333333333333333f, 0.5f);
}

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
        case 17: *out = between(u, s[0], s[1]); break;
        case 18: *out = u < 0.0f ? by * u : u; break;
        case 19: *out = between(fmaf(s[0], u, s[1]), 0.0f, 1.0f); break;
        case 20: *out = u * between(fmaf(u, 0.16666666666666666f, 0.5f), 0.0f, 1.0f); break;
        case 21: *out = exact_sqrt(u); break;
        case 22: *out = exact_exp(u); break;
        case 23: *out = exact_log(u); break;
        case 24: *out = exact_erf(u); break;
        case 25: *out = power(u, s[0], s[1]); break;
        case 26: *out = s[0] < v && v < s[1] ? u : 0.0f; break;
        case 27: *out = v > 0.0f ? u : by * u; break;
        case 28: *out = 0.0f < v && v < 1.0f ? u * by : 0.0f; break;
        case 29: *out = hard_swish_grad(u, v); break;
        case 30: *out = u * (1.1283791670955126f * exact_exp(-(v * v))); break;
        default: { /* 16, gradient of a normalised element: dy, x, scale, mean, inv_std, dscale, dbias */
            float h = (v - d[p[3]]) * e[p[4]];
            *out = c[p[2]] * e[p[4]] / by * fmaf(-h, f[p[5]], by * u - g[p[6]]);
        }
        }
    }
}

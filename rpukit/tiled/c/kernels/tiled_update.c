/* A step of SGD (kind 0), of SGD with momentum (1) or of Adam (2); powers of Adam's decays (3). */
void tiled_update(const int32_t *n, const float *s, float *w, const float *gradient, float *m, float *v,
                  const float *powers) {
    for (int32_t i = 0; i < n[0]; i++) {
        if (n[1] == 0) {
            w[i] -= s[0] * gradient[i];
        } else if (n[1] == 1) {
            m[i] = fmaf(s[1], m[i], gradient[i]);
            w[i] -= s[0] * m[i];
        } else if (n[1] == 2) {
            float g = gradient[i], first = 1.0f - powers[0], second = 1.0f - powers[1];
            m[i] = fmaf(s[1], m[i], (1.0f - s[1]) * g);
            v[i] = fmaf(s[2], v[i], (1.0f - s[2]) * g * g);
            w[i] -= s[0] * (m[i] / first) / (exact_sqrt(v[i] / second) + s[3]);
        } else {
            w[i] *= s[1 + i];
        }
    }
}

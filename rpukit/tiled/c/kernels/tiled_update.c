/* A step of SGD (kind 0), of SGD with momentum (1) or of Adam (2); powers of Adam's decays (3). */
typedef struct {
    int32_t elements, kind;
    float rate, decay1, decay2, epsilon;
} tiled_update_t;

void tiled_update(team_t team, const tiled_update_t *n, float *w, const float *gradient, float *m, float *v,
                  const float *powers) {
    share_t own = share(team, n->elements);
    float rate = n->rate, decay1 = n->decay1, decay2 = n->decay2, first = 1.0f, second = 1.0f;
    if (n->kind == 2) first = 1.0f - powers[0], second = 1.0f - powers[1];
    for (int32_t i = own.begin; i < own.end; i++) {
        if (n->kind == 0) {
            w[i] -= rate * gradient[i];
        } else if (n->kind == 1) {
            m[i] = fma32(decay1, m[i], gradient[i]);
            w[i] -= rate * m[i];
        } else if (n->kind == 2) {
            float g = gradient[i];
            m[i] = fma32(decay1, m[i], (1.0f - decay1) * g);
            v[i] = fma32(decay2, v[i], (1.0f - decay2) * g * g);
            w[i] -= rate * (m[i] / first) / (exact_sqrt(v[i] / second) + n->epsilon);
        } else {
            w[i] *= i ? decay2 : decay1;
        }
    }
}

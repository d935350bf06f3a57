/* Gradient of layer normalisation: s (d - mean d - h mean (d h)), d = dy scale, h normalised. */
typedef struct {
    int32_t rows, kind, length, inner, unused[2];
    float epsilon;
} tiled_layer_norm_grad_t;

void tiled_layer_norm_grad(team_t team, const tiled_layer_norm_grad_t *n, const float *dy, const float *x,
                           const float *scale, const float *mean, const float *inv_std, float *dx) {
    share_t own = share(team, n->rows);
    int32_t length = n->length;
    float size = (float)length;
    for (int32_t row = own.begin; row < own.end; row++) {
        const float *u = dy + row * length, *v = x + row * length;
        float *out = dx + row * length, middle = mean[row], inv = inv_std[row], s = 0.0f, t = 0.0f;
        for (int32_t k = 0; k < length; k++) {
            float d = u[k] * scale[k];
            s += d;
            t = fma32(d, (v[k] - middle) * inv, t);
        }
        s /= size, t /= size;
        for (int32_t k = 0; k < length; k++) out[k] = inv * fma32(-((v[k] - middle) * inv), t, u[k] * scale[k] - s);
    }
}

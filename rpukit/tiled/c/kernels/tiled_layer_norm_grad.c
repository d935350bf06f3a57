/* Gradient of layer normalisation: s (d - mean d - h mean (d h)), d = dy scale, h normalised. */
void tiled_layer_norm_grad(const int32_t *n, const float *dy, const float *x, const float *scale, const float *mean,
                           const float *inv_std, float *dx) {
    float size = (float)n[2];
    for (int32_t row = 0; row < n[0]; row++, dy += n[2], x += n[2], dx += n[2]) {
        float middle = mean[row], inv = inv_std[row], s = 0.0f, t = 0.0f;
        for (int32_t k = 0; k < n[2]; k++) {
            float d = dy[k] * scale[k];
            s += d;
            t = fmaf(d, (x[k] - middle) * inv, t);
        }
        s /= size, t /= size;
        for (int32_t k = 0; k < n[2]; k++) dx[k] = inv * fmaf(-((x[k] - middle) * inv), t, dy[k] * scale[k] - s);
    }
}

/* Layer normalisation of rows; mean and 1 / deviation are kept where they are wanted. */
void tiled_layer_norm(const int32_t *n, const float *s, const float *x, const float *scale, const float *bias, float *y,
                      float *mean, float *inv_std) {
    float size = (float)n[2];
    for (int32_t row = 0; row < n[0]; row++, x += n[2], y += n[2]) {
        float sum = 0.0f, squares = 0.0f;
        for (int32_t k = 0; k < n[2]; k++) sum += x[k];
        float middle = sum / size;
        for (int32_t k = 0; k < n[2]; k++) squares = fmaf(x[k] - middle, x[k] - middle, squares);
        float inv = 1.0f / exact_sqrt(squares / size + s[0]);
        for (int32_t k = 0; k < n[2]; k++) y[k] = fmaf((x[k] - middle) * inv, scale[k], bias[k]);
        if (n[4]) mean[row] = middle;
        if (n[5]) inv_std[row] = inv;
    }
}

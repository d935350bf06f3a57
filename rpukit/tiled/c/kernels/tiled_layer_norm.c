/* Layer normalisation of rows; mean and 1 / deviation are kept where they are wanted. */
typedef struct {
    int32_t rows, kind, length, inner, keep_mean, keep_inv_std;
    float epsilon;
} tiled_layer_norm_t;

void tiled_layer_norm(team_t team, const tiled_layer_norm_t *n, const float *x, const float *scale, const float *bias,
                      float *y, float *mean, float *inv_std) {
    share_t own = share(team, n->rows);
    int32_t length = n->length;
    float size = (float)length;
    for (int32_t row = own.begin; row < own.end; row++) {
        const float *v = x + row * length;
        float *out = y + row * length, sum = 0.0f, squares = 0.0f;
        for (int32_t k = 0; k < length; k++) sum += v[k];
        float middle = sum / size;
        for (int32_t k = 0; k < length; k++) squares = fma32(v[k] - middle, v[k] - middle, squares);
        float inv = 1.0f / exact_sqrt(squares / size + n->epsilon);
        for (int32_t k = 0; k < length; k++) out[k] = fma32((v[k] - middle) * inv, scale[k], bias[k]);
        if (n->keep_mean) mean[row] = middle;
        if (n->keep_inv_std) inv_std[row] = inv;
    }
}

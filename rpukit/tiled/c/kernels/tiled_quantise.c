/* Numbers rounded to 8 or 16 bits: integers in units of the scale, float16, or 1 where positive. */
typedef struct {
    int32_t rows, length, channels, kind;
} tiled_quantise_t;

void tiled_quantise(team_t team, const tiled_quantise_t *n, const float *x, const float *scale, void *y) {
    share_t own = share(team, n->rows);
    for (int32_t r = own.begin; r < own.end; r++)
        for (int32_t k = 0, i = r * n->length; k < n->length; k++, i++) {
            if (n->kind == 0) ((int8_t *)y)[i] = (int8_t)narrow_integer(x[i], scale[r % n->channels]);
            else if (n->kind == 1) ((uint16_t *)y)[i] = narrow_half(x[i]);
            else ((int8_t *)y)[i] = x[i] > 0.0f;
        }
}

/* Numbers of 8 or 16 bits as float: integers times the scale, float16, or integers. */
typedef struct {
    int32_t rows, length, channels, kind;
} tiled_dequantise_t;

void tiled_dequantise(team_t team, const tiled_dequantise_t *n, const void *q, const float *scale, float *y) {
    share_t own = share(team, n->rows);
    for (int32_t r = own.begin; r < own.end; r++)
        for (int32_t k = 0, i = r * n->length; k < n->length; k++, i++) {
            if (n->kind == 0) y[i] = (float)((const int8_t *)q)[i] * scale[r % n->channels];
            else if (n->kind == 1) y[i] = narrow_float(((const uint16_t *)q)[i]);
            else y[i] = (float)((const int8_t *)q)[i];
        }
}

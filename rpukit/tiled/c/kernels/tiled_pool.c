/* The largest, or the mean, of each window, row by row. */
typedef struct {
    int32_t planes, mean, oh, ow, kp, kq; /* of results; window */
    int32_t sh, sw, top, left, xh, xw;    /* strides, the first window's place, the input's tile */
    int32_t include;                      /* a mean divides by the whole window */
} tiled_pool_t;

void tiled_pool(team_t team, const tiled_pool_t *n, const float *x, float *y) {
    int32_t oh = n->oh, ow = n->ow, xh = n->xh, xw = n->xw;
    share_t own = share(team, n->planes * oh);
    for (int32_t unit = own.begin; unit < own.end; unit++) {
        int32_t h = unit % oh * n->sh + n->top, w = n->left;
        int32_t h0 = h > 0 ? h : 0, h1 = h + n->kp < xh ? h + n->kp : xh;
        const float *image = x + unit / oh * xh * xw;
        for (int32_t j = 0; j < ow; j++, w += n->sw) {
            int32_t w0 = w > 0 ? w : 0, w1 = w + n->kq < xw ? w + n->kq : xw;
            float v = n->mean ? 0.0f : image[h0 * xw + w0];
            for (int32_t p = h0; p < h1; p++)
                for (const float *at = image + p * xw + w0, *end = image + p * xw + w1; at < end; at++)
                    v = n->mean ? v + *at : *at > v ? *at : v;
            y[unit * ow + j] = n->mean ? v / (float)(n->include ? n->kp * n->kq : (h1 - h0) * (w1 - w0)) : v;
        }
    }
}

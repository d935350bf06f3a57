/* Gradient of a convolution's input: each pixel gathers from the windows over it. */
typedef struct {
    int32_t planes, ci, eh, ew, co, kp, kq; /* of the gradient; output channels of a group; window */
    int32_t sh, sw, dh, dw, top, left;      /* strides, dilations, the first window's place */
    int32_t yc, yh, yw, group;              /* the tile of dy; input channels of a group */
    int32_t first;                          /* begin the sums */
} tiled_conv_grad_x_t;

typedef struct { int32_t first, count, at; } hits_t; /* places of a window that lie over a pixel, and dy of the first */

/* Steps between hits: of the place in the window, and of dy, which goes down. */
static inline hits_t hit_steps(int32_t stride, int32_t dilation) {
    int32_t step = 1;
    while (step * dilation % stride) step++;
    return (hits_t){step, 0, step * dilation / stride};
}

static inline hits_t hits(int32_t far, hits_t step, int32_t stride, int32_t dilation, int32_t window, int32_t size) {
    int32_t k = 0;
    if (stride > 1)
        while (k < step.first && far >= 0 && far % stride) k++, far -= dilation;
    if (far < 0 || k == step.first) return (hits_t){0, 0, 0};
    int32_t at = stride > 1 ? far / stride : far, count = 0;
    for (; at >= size; at -= step.at) k += step.first;
    for (int32_t p = k, y = at; p < window && y >= 0; p += step.first, y -= step.at) count++;
    return count ? (hits_t){k, count, at} : (hits_t){0, 0, 0};
}

/* Go on with the sums of one pixel for `wide` neighbouring input channels. */
static inline void conv_gather(const tiled_conv_grad_x_t *n, const float *dy, const float *w, hits_t rows, hits_t columns,
                               hits_t down, hits_t right, int wide, float *total) {
    int32_t size = n->kp * n->kq, plane = n->yh * n->yw;
    dy += rows.at * n->yw + columns.at, w += rows.first * n->kq + columns.first;
    for (int32_t o = 0; o < n->co; o++, dy += plane, w += n->group * size)
        for (int32_t p = 0; p < rows.count; p++) {
            const float *line = dy - p * down.at * n->yw, *v = w + p * down.first * n->kq;
            for (int32_t q = 0; q < columns.count; q++, line -= right.at, v += right.first)
                for (int k = 0; k < wide; k++) total[k] = fma32(*line, v[k * size], total[k]);
        }
}

void tiled_conv_grad_x(team_t team, const tiled_conv_grad_x_t *n, const float *dy, const float *w, float *dx) {
    int32_t ci = n->ci, eh = n->eh, ew = n->ew, group = n->group, size = eh * ew, depth = n->kp * n->kq;
    int32_t blocks = (ci + 3) / 4; /* of channels, which share what is read of dy */
    hits_t down = hit_steps(n->sh, n->dh), right = hit_steps(n->sw, n->dw);
    share_t own = share(team, n->planes / ci * blocks * eh);
    for (int32_t unit = own.begin; unit < own.end; unit++) {
        int32_t h = unit % eh, block = unit / eh % blocks, sample = unit / (eh * blocks);
        int32_t c = 4 * block, end = c + 4 < ci ? c + 4 : ci;
        hits_t rows = hits(h - n->top, down, n->sh, n->dh, n->kp, n->yh);
        while (c < end) {
            int wide = end - c == 4 && c / group == (c + 3) / group ? 4 : 1;
            int32_t ahead = c / group * n->co;
            const float *image = dy + (sample * n->yc + ahead) * n->yh * n->yw;
            const float *weights = w + (ahead * group + c % group) * depth;
            float *out = dx + (sample * ci + c) * size + h * ew;
            for (int32_t j = 0; j < ew; j++, out++) {
                hits_t columns = hits(j - n->left, right, n->sw, n->dw, n->kq, n->yw);
                float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                for (int k = 0; k < wide && !n->first; k++) total[k] = out[k * size];
                if (wide == 4) conv_gather(n, image, weights, rows, columns, down, right, 4, total);
                else conv_gather(n, image, weights, rows, columns, down, right, 1, total);
                for (int k = 0; k < wide; k++) out[k * size] = total[k];
            }
            c += wide;
        }
    }
}

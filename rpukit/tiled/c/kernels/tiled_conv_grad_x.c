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
    if (stride == 1 && dilation == 1) { /* most often */
        k = far < size ? 0 : far - size + 1;
        int32_t most = window - k, fit = far - k + 1;
        return most > 0 ? (hits_t){k, most < fit ? most : fit, far - k} : (hits_t){0, 0, 0};
    }
    int32_t at = stride > 1 ? far / stride : far, count = 0;
    for (; at >= size; at -= step.at) k += step.first;
    for (int32_t p = k, y = at; p < window && y >= 0; p += step.first, y -= step.at) count++;
    return count ? (hits_t){k, count, at} : (hits_t){0, 0, 0};
}

/* Go on with `wide` sums, of neighbouring columns (dy_lane apart) or channels (w_lane apart). */
static inline void gather_lanes(const tiled_conv_grad_x_t *n, const float *dy, const float *w, hits_t rows, hits_t columns,
                                hits_t down, hits_t right, int wide, int32_t dy_lane, int32_t w_lane, float *total) {
    int32_t ahead = n->group * n->kp * n->kq, plane = n->yh * n->yw;
    int32_t line = down.at * n->yw, w_line = down.first * n->kq, next = right.at, w_next = right.first;
    dy += rows.at * n->yw + columns.at, w += rows.first * n->kq + columns.first;
    if (rows.count * columns.count == 1) { /* windows of one place */
        for (int32_t o = n->co; o > 0; o--, dy += plane, w += ahead)
            LANES total[k] = fma32(dy[k * dy_lane], w[k * w_lane], total[k]);
        return;
    }
    for (int32_t o = n->co; o > 0; o--, dy += plane, w += ahead) {
        const float *own_dy = dy, *own_w = w;
        for (int32_t p = rows.count; p > 0; p--, own_dy -= line, own_w += w_line) {
            const float *at = own_dy, *v = own_w;
            for (int32_t q = columns.count; q > 0; q--, at -= next, v += w_next)
                LANES total[k] = fma32(at[k * dy_lane], v[k * w_lane], total[k]);
        }
    }
}

/* One row of `wide` neighbouring channels: four channels at once, whose dy lie dy_lane apart, or four columns that all
 * windows reach. */
static inline void gather_row(const tiled_conv_grad_x_t *n, const float *dy, const float *w, hits_t rows, hits_t down,
                              hits_t right, int wide, int32_t dy_lane, float *dx) {
    int32_t ew = n->ew, size = n->eh * ew, depth = n->kp * n->kq, kq = n->kq;
    for (int32_t j = 0, lanes; j < ew; j += lanes) {
        hits_t columns = hits(j - n->left, right, n->sw, n->dw, kq, n->yw);
        int32_t few = wide == 4 || j + 4 > ew || n->sw > 1 || columns.count < kq;
        lanes = few || j + 3 - n->left >= n->yw ? 1 : 4;
        int32_t count = wide * lanes, step = wide == 1 ? 1 : size;
        float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int k = 0; k < count && !n->first; k++) total[k] = dx[j + k * step];
        if (count == 1) gather_lanes(n, dy, w, rows, columns, down, right, 1, 0, 0, total);
        else if (wide == 1) gather_lanes(n, dy, w, rows, columns, down, right, 4, 1, 0, total);
        else if (!dy_lane) gather_lanes(n, dy, w, rows, columns, down, right, 4, 0, depth, total);
        else gather_lanes(n, dy, w, rows, columns, down, right, 4, dy_lane, n->co * depth, total);
        for (int k = 0; k < count; k++) dx[j + k * step] = total[k];
    }
}

void tiled_conv_grad_x(team_t team, const tiled_conv_grad_x_t *n, const float *dy, const float *w, float *dx) {
    int32_t ci = n->ci, eh = n->eh, group = n->group, depth = n->kp * n->kq;
    int32_t blocks = (ci + 3) / 4; /* of channels */
    hits_t down = hit_steps(n->sh, n->dh), right = hit_steps(n->sw, n->dw);
    share_t own = share(team, n->planes / ci * blocks * eh);
    for (int32_t unit = own.begin; unit < own.end; unit++) {
        int32_t h = unit % eh, block = unit / eh % blocks, sample = unit / (eh * blocks);
        hits_t rows = hits(h - n->top, down, n->sh, n->dh, n->kp, n->yh);
        for (int32_t c = 4 * block, end = c + 4 < ci ? c + 4 : ci, wide; c < end; c += wide) {
            wide = end - c == 4 && (group == 1 || c / group == (c + 3) / group) ? 4 : 1;
            int32_t ahead = c / group * n->co;
            const float *image = dy + (sample * n->yc + ahead) * n->yh * n->yw;
            const float *weights = w + (ahead * group + c % group) * depth;
            int32_t lane = group == 1 ? n->co * n->yh * n->yw : 0;
            gather_row(n, image, weights, rows, down, right, wide, lane, dx + ((sample * ci + c) * eh + h) * n->ew);
        }
    }
}

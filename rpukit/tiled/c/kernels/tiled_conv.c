/* Convolution with groups; zeros stand around the image. Chains over (channel, row, column). */
typedef struct {
    int32_t planes, co, oh, ow, ci, kp, kq; /* of results; input channels of a group; window */
    int32_t sh, sw, dh, dw, top, left;      /* strides, dilations, the first window's place */
    int32_t xc, xh, xw, group;              /* the input's tile; output channels of a group */
    int32_t first, last, add;               /* begin the sums; end them; with a bias */
} tiled_conv_t;

/* The part of a row or column of windows that lies in the image: places begin to end - 1. */
typedef struct { int32_t begin, end; } seen_t;

static inline seen_t seen(int32_t at, int32_t step, int32_t n, int32_t size) {
    return (seen_t){first_inside(at, step, n), end_inside(at, step, n, size)};
}

/* Go on with `wide` sums, of neighbouring columns (x_lane apart) or channels (w_lane apart). Beyond the image zeros are
 * multiplied, since a weight may be NaN. */
static inline void conv_lanes(const tiled_conv_t *n, const float *x, const float *w, seen_t rows, seen_t columns, int wide,
                              int32_t x_lane, int32_t w_lane, float *total) {
    int32_t kp = n->kp, kq = n->kq, dh = n->dh * n->xw, dw = n->dw, plane = n->xh * n->xw;
    if (kp * kq == 1 && rows.begin < rows.end && columns.begin < columns.end) {
        for (int32_t c = n->ci; c > 0; c--, x += plane, w++)
            LANES total[k] = fma32(x[k * x_lane], w[k * w_lane], total[k]);
        return;
    }
    for (int32_t c = n->ci; c > 0; c--, x += plane) {
        const float *line = x;
        for (int32_t p = 0; p < kp; p++, line += dh) {
            int32_t outside = p < rows.begin || p >= rows.end, in0 = outside ? kq : columns.begin, q = 0;
            for (; q < in0; q++, w++)
                LANES total[k] = fma32(0.0f, w[k * w_lane], total[k]);
            for (const float *at = line + q * dw; q < columns.end; q++, w++, at += dw)
                LANES total[k] = fma32(at[k * x_lane], w[k * w_lane], total[k]);
            for (; q < kq; q++, w++)
                LANES total[k] = fma32(0.0f, w[k * w_lane], total[k]);
        }
    }
}

/* One row of results of `wide` neighbouring channels: four channels at once, whose images lie x_lane apart, or four
 * columns that lie inside. */
static inline void conv_row(const tiled_conv_t *n, const float *x, const float *w, const float *bias, seen_t rows, int wide,
                            int32_t x_lane, float *y) {
    int32_t ow = n->ow, size = n->oh * ow, depth = n->ci * n->kp * n->kq, sw = n->sw;
    for (int32_t j = 0, left = n->left, lanes; j < ow; j += lanes, left += lanes * sw) {
        seen_t columns = seen(left, n->dw, n->kq, n->xw), last = columns;
        if (wide == 1 && j + 4 <= ow) last = seen(left + 3 * sw, n->dw, n->kq, n->xw);
        lanes = wide == 1 && j + 4 <= ow && columns.begin == 0 && last.end == n->kq ? 4 : 1;
        int32_t count = wide * lanes, step = wide == 1 ? 1 : size;
        float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int k = 0; k < count && !n->first; k++) total[k] = y[j + k * step];
        if (count == 1) conv_lanes(n, x + left, w, rows, columns, 1, 0, 0, total);
        else if (wide == 4 && !x_lane) conv_lanes(n, x + left, w, rows, columns, 4, 0, depth, total);
        else if (wide == 4) conv_lanes(n, x + left, w, rows, columns, 4, x_lane, depth, total);
        else conv_lanes(n, x + left, w, rows, columns, 4, sw, 0, total);
        for (int k = 0; k < count; k++)
            y[j + k * step] = n->last && n->add ? total[k] + bias[wide == 1 ? 0 : k] : total[k];
    }
}

void tiled_conv(team_t team, const tiled_conv_t *n, const float *x, const float *w, const float *bias, float *y) {
    int32_t co = n->co, oh = n->oh, depth = n->ci * n->kp * n->kq;
    int32_t blocks = (co + 3) / 4; /* of channels */
    share_t own = share(team, n->planes / co * blocks * oh);
    for (int32_t unit = own.begin; unit < own.end; unit++) {
        int32_t i = unit % oh, block = unit / oh % blocks, sample = unit / (oh * blocks), h = i * n->sh + n->top;
        seen_t rows = seen(h, n->dh, n->kp, n->xh);
        for (int32_t o = 4 * block, end = o + 4 < co ? o + 4 : co, wide; o < end; o += wide) {
            wide = end - o == 4 && (n->group == 1 || o / n->group == (o + 3) / n->group) ? 4 : 1;
            const float *line = x + ((sample * n->xc + o / n->group * n->ci) * n->xh + h) * n->xw;
            float *out = y + ((sample * co + o) * oh + i) * n->ow;
            conv_row(n, line, w + o * depth, n->add ? bias + o : bias, rows, wide, n->group == 1 ? n->ci * n->xh * n->xw : 0, out);
        }
    }
}

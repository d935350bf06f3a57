/* Gradient of a convolution's weights: one chain over (sample, row, column) of dy for each. */
typedef struct {
    int32_t co, ci, kp, kq, samples, oh, ow; /* of the weights; of dy */
    int32_t sh, sw, dh, dw, top, left;       /* strides, dilations, the first window's place */
    int32_t xc, xh, xw, group;               /* the input's tile; output channels of a group */
    int32_t first;                           /* begin the sums */
} tiled_conv_grad_w_t;

/* Rows i0 to i1 - 1 and columns j0 to j1 - 1 of dy meet the image. */
typedef struct { int32_t i0, i1, j0, j1; } meet_t;

/* Go on with `wide` sums, of neighbouring output channels (dy_lane apart), input channels (x_lane apart), or both. */
static inline void slope_lanes(const tiled_conv_grad_w_t *n, const float *dy, const float *x, meet_t meet, int wide,
                               int32_t dy_lane, int32_t x_lane, float *total) {
    int32_t sw = n->sw, oh = n->oh, ow = n->ow, line = n->sh * n->xw;
    if (line == ow * sw && meet.i0 + meet.j0 == 0 && meet.i1 == oh && meet.j1 == ow) /* rows without a gap */
        ow *= oh, oh = 1, meet = (meet_t){0, 1, 0, ow};
    for (int32_t i = 0; i < oh; i++, x += line) {
        int32_t outside = i < meet.i0 || i >= meet.i1, in0 = outside ? ow : meet.j0, j = 0;
        for (; j < in0; j++, dy++)
            LANES total[k] = fma32(dy[k * dy_lane], 0.0f, total[k]);
        for (const float *at = x + j * sw; j < meet.j1; j++, dy++, at += sw)
            LANES total[k] = fma32(dy[k * dy_lane], at[k * x_lane], total[k]);
        for (; j < ow; j++, dy++)
            LANES total[k] = fma32(dy[k * dy_lane], 0.0f, total[k]);
    }
}

/* The sums of one place of the window for `wide` weights, which lie `step` apart. */
static inline void slope_sums(const tiled_conv_grad_w_t *n, const float *dy, const float *x, meet_t meet, int wide,
                              int32_t dy_lane, int32_t x_lane, int32_t step, float *dw) {
    float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < wide && !n->first; k++) total[k] = dw[k * step];
    for (int32_t t = n->samples; t > 0; t--, dy += n->co * n->oh * n->ow, x += n->xc * n->xh * n->xw)
        slope_lanes(n, dy, x, meet, wide, dy_lane, x_lane, total);
    for (int k = 0; k < wide; k++) dw[k * step] = total[k];
}

void tiled_conv_grad_w(team_t team, const tiled_conv_grad_w_t *n, const float *dy, const float *x, float *dw) {
    int32_t co = n->co, ci = n->ci, kp = n->kp, kq = n->kq, window = kp * kq, plane = n->xh * n->xw, size = n->oh * n->ow;
    int32_t over_co = co >= 4 && (n->group >= 4 || n->group == 1); /* four output channels at once, else four input channels */
    int32_t outer = over_co ? (co + 3) / 4 : co, inner = over_co ? ci : (ci + 3) / 4;
    share_t own = share(team, outer * inner * window);
    for (int32_t unit = own.begin; unit < own.end; unit++) {
        int32_t q = unit % kq, p = unit / kq % kp, rest = unit / window, h = p * n->dh + n->top, at = q * n->dw + n->left;
        int32_t o = rest / inner * (over_co ? 4 : 1), c = rest % inner * (over_co ? 1 : 4);
        int32_t left = over_co ? co - o : ci - c, step = over_co ? ci * window : window;
        meet_t meet = {first_inside(h, n->sh, n->oh), end_inside(h, n->sh, n->oh, n->xh),
                       first_inside(at, n->sw, n->ow), end_inside(at, n->sw, n->ow, n->xw)};
        for (int32_t k = 0, wide; k < (left < 4 ? left : 4); k += wide) {
            int32_t own_o = over_co ? o + k : o, own_c = over_co ? c : c + k;
            const float *slope = dy + own_o * size;
            const float *image = x + (own_o / n->group * ci + own_c) * plane + h * n->xw + at;
            float *out = dw + (own_o * ci + own_c) * window + p * kq + q;
            wide = left >= 4 && (!over_co || n->group == 1 || o / n->group == (o + 3) / n->group) ? 4 : 1;
            if (wide == 1) slope_sums(n, slope, image, meet, 1, 0, 0, step, out);
            else if (over_co && n->group > 1) slope_sums(n, slope, image, meet, 4, size, 0, step, out);
            else slope_sums(n, slope, image, meet, 4, over_co ? size : 0, over_co ? ci * plane : plane, step, out);
        }
    }
}

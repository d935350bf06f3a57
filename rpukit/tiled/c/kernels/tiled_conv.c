/* Convolution with groups; zeros stand around the image. Chains over (channel, row, column). */
typedef struct {
    int32_t planes, co, oh, ow, ci, kp, kq; /* of results; input channels of a group; window */
    int32_t sh, sw, dh, dw, top, left;      /* strides, dilations, the first window's place */
    int32_t xc, xh, xw, group;              /* the input's tile; output channels of a group */
    int32_t first, last, add;               /* begin the sums; end them; with a bias */
} tiled_conv_t;

/* Go on with the sums of one pixel for `wide` neighbouring output channels. Window rows p0 to p1 - 1 and columns
 * q0 to q1 - 1 lie in the image; beyond them zeros are multiplied, since a weight may be NaN. */
static inline void conv_pixel(const tiled_conv_t *n, const float *x, const float *w, int32_t p0, int32_t p1, int32_t q0,
                              int32_t q1, int wide, float *total) {
    int32_t kq = n->kq, ci = n->ci, dh = n->dh * n->xw, dw = n->dw, plane = n->xh * n->xw, ahead = ci * n->kp * kq;
    if (n->kp * kq == 1 && p1 > p0 && q1 > q0) {
        for (int32_t c = 0; c < ci; c++, x += plane, w++)
            for (int k = 0; k < wide; k++) total[k] = fma32(*x, w[k * ahead], total[k]);
        return;
    }
    for (int32_t c = 0; c < ci; c++, x += plane) {
        const float *line = x;
        for (int32_t p = 0; p < n->kp; p++, line += dh) {
            int32_t q = 0, in0 = p < p0 || p >= p1 ? kq : q0, in1 = p < p0 || p >= p1 ? kq : q1;
            for (; q < in0; q++, w++)
                for (int k = 0; k < wide; k++) total[k] = fma32(0.0f, w[k * ahead], total[k]);
            for (const float *at = line + q * dw; q < in1; q++, w++, at += dw)
                for (int k = 0; k < wide; k++) total[k] = fma32(*at, w[k * ahead], total[k]);
            for (; q < kq; q++, w++)
                for (int k = 0; k < wide; k++) total[k] = fma32(0.0f, w[k * ahead], total[k]);
        }
    }
}

void tiled_conv(team_t team, const tiled_conv_t *n, const float *x, const float *w, const float *bias, float *y) {
    int32_t co = n->co, oh = n->oh, ow = n->ow, size = oh * ow, depth = n->ci * n->kp * n->kq;
    int32_t blocks = (co + 3) / 4; /* of channels, which share what is read of the image */
    share_t own = share(team, n->planes / co * blocks * oh);
    for (int32_t unit = own.begin; unit < own.end; unit++) {
        int32_t i = unit % oh, block = unit / oh % blocks, sample = unit / (oh * blocks);
        int32_t o = 4 * block, end = o + 4 < co ? o + 4 : co, h = i * n->sh + n->top;
        int32_t p0 = first_inside(h, n->dh, n->kp), p1 = end_inside(h, n->dh, n->kp, n->xh);
        while (o < end) {
            int wide = end - o == 4 && o / n->group == (o + 3) / n->group ? 4 : 1;
            const float *image = x + (sample * n->xc + o / n->group * n->ci) * n->xh * n->xw;
            float *out = y + (sample * co + o) * size + i * ow;
            for (int32_t j = 0, left = n->left; j < ow; j++, left += n->sw, out++) {
                int32_t q0 = first_inside(left, n->dw, n->kq), q1 = end_inside(left, n->dw, n->kq, n->xw);
                const float *at = image + h * n->xw + left;
                float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                for (int k = 0; k < wide && !n->first; k++) total[k] = out[k * size];
                if (wide == 4) conv_pixel(n, at, w + o * depth, p0, p1, q0, q1, 4, total);
                else conv_pixel(n, at, w + o * depth, p0, p1, q0, q1, 1, total);
                for (int k = 0; k < wide; k++) out[k * size] = n->last && n->add ? total[k] + bias[o + k] : total[k];
            }
            o += wide;
        }
    }
}

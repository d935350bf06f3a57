/* Gradient of a convolution's weights: one chain over (sample, row, column) of dy for each. */
typedef struct {
    int32_t co, ci, kp, kq, samples, oh, ow; /* of the weights; of dy */
    int32_t sh, sw, dh, dw, top, left;       /* strides, dilations, the first window's place */
    int32_t xc, xh, xw, group;               /* the input's tile; output channels of a group */
    int32_t first;                           /* begin the sums */
} tiled_conv_grad_w_t;

/* Go on with the sums of `wide` input channels. Rows i0 to i1 - 1 and columns j0 to j1 - 1 of dy meet the image. */
static inline void conv_slopes(const tiled_conv_grad_w_t *n, const float *dy, const float *x, int32_t i0, int32_t i1,
                               int32_t j0, int32_t j1, int wide, float *total) {
    int32_t plane = n->xh * n->xw, sw = n->sw, ow = n->ow;
    for (int32_t i = 0; i < n->oh; i++) {
        int32_t j = 0, in0 = i < i0 || i >= i1 ? ow : j0, in1 = i < i0 || i >= i1 ? ow : j1;
        const float *at = x + i * n->sh * n->xw + in0 * sw;
        for (; j < in0; j++, dy++)
            for (int k = 0; k < wide; k++) total[k] = fma32(*dy, 0.0f, total[k]);
        for (; j < in1; j++, dy++, at += sw)
            for (int k = 0; k < wide; k++) total[k] = fma32(*dy, at[k * plane], total[k]);
        for (; j < ow; j++, dy++)
            for (int k = 0; k < wide; k++) total[k] = fma32(*dy, 0.0f, total[k]);
    }
}

void tiled_conv_grad_w(team_t team, const tiled_conv_grad_w_t *n, const float *dy, const float *x, float *dw) {
    int32_t ci = n->ci, kp = n->kp, kq = n->kq, plane = n->xh * n->xw;
    int32_t blocks = (ci + 3) / 4; /* of channels, which share what is read of dy */
    share_t own = share(team, n->co * blocks * kp * kq);
    for (int32_t unit = own.begin; unit < own.end; unit++) {
        int32_t q = unit % kq, p = unit / kq % kp, block = unit / (kq * kp) % blocks, o = unit / (kq * kp * blocks);
        int32_t c = 4 * block, end = c + 4 < ci ? c + 4 : ci, h = p * n->dh + n->top, at = q * n->dw + n->left;
        int32_t i0 = first_inside(h, n->sh, n->oh), i1 = end_inside(h, n->sh, n->oh, n->xh);
        int32_t j0 = first_inside(at, n->sw, n->ow), j1 = end_inside(at, n->sw, n->ow, n->xw);
        while (c < end) {
            int wide = end - c == 4 ? 4 : 1;
            float *out = dw + ((o * ci + c) * kp + p) * kq + q, total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            for (int k = 0; k < wide && !n->first; k++) total[k] = out[k * kp * kq];
            for (int32_t t = 0; t < n->samples; t++) {
                const float *slope = dy + (t * n->co + o) * n->oh * n->ow;
                const float *image = x + (t * n->xc + o / n->group * ci + c) * plane + h * n->xw + at;
                if (wide == 4) conv_slopes(n, slope, image, i0, i1, j0, j1, 4, total);
                else conv_slopes(n, slope, image, i0, i1, j0, j1, 1, total);
            }
            for (int k = 0; k < wide; k++) out[k * kp * kq] = total[k];
            c += wide;
        }
    }
}

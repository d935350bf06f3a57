/* Gradient of a convolution's weights: one chain over (sample, row, column) of dy for each. */
void tiled_conv_grad_w(const int32_t *n, const float *dy, const float *x, float *dw) {
    int32_t co = n[0], ci = n[1], kp = n[2], kq = n[3], oh = n[5], ow = n[6], xc = n[13], xh = n[14], xw = n[15];
    for (int32_t e = 0; e < co * ci * kp * kq; e++) {
        int32_t q = e % kq, p = e / kq % kp, c = e / (kq * kp) % ci, o = e / (kq * kp * ci);
        int32_t down = p * n[9] + n[11], right = q * n[10] + n[12];
        float total = n[17] ? 0.0f : dw[e];
        for (int32_t t = 0; t < n[4]; t++) {
            const float *slope = dy + (t * co + o) * oh * ow, *plane = x + (t * xc + o / n[16] * ci + c) * xh * xw;
            for (int32_t i = 0; i < oh; i++)
                for (int32_t j = 0; j < ow; j++) {
                    int32_t h = i * n[7] + down, at = j * n[8] + right;
                    int inside = 0 <= h && h < xh && 0 <= at && at < xw;
                    total = fmaf(slope[i * ow + j], inside ? plane[h * xw + at] : 0.0f, total);
                }
        }
        dw[e] = total;
    }
}

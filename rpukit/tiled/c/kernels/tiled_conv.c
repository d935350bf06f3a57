/* Convolution with groups; zeros stand around the image. Chains over (channel, row, column). */
void tiled_conv(const int32_t *n, const float *x, const float *w, const float *bias, float *y) {
    int32_t co = n[1], oh = n[2], ow = n[3], ci = n[4], kp = n[5], kq = n[6], xc = n[13], xh = n[14], xw = n[15];
    for (int32_t e = 0; e < n[0] * oh * ow; e++) {
        int32_t row = e / (oh * ow), i = e / ow % oh, j = e % ow, o = row % co;
        float total = n[17] ? 0.0f : y[e];
        for (int32_t c = 0; c < ci; c++) {
            const float *plane = x + (row / co * xc + o / n[16] * ci + c) * xh * xw, *v = w + (o * ci + c) * kp * kq;
            for (int32_t p = 0; p < kp; p++)
                for (int32_t q = 0; q < kq; q++) {
                    int32_t h = i * n[7] + p * n[9] + n[11], at = j * n[8] + q * n[10] + n[12];
                    int inside = 0 <= h && h < xh && 0 <= at && at < xw;
                    total = fmaf(inside ? plane[h * xw + at] : 0.0f, v[p * kq + q], total);
                }
        }
        y[e] = n[18] && n[19] ? total + bias[o] : total;
    }
}

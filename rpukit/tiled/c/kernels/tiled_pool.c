/* The largest, or the mean, of each window, row by row. */
void tiled_pool(const int32_t *n, const float *x, float *y) {
    int32_t oh = n[2], ow = n[3], kp = n[4], kq = n[5], xh = n[10], xw = n[11];
    for (int32_t e = 0; e < n[0] * oh * ow; e++) {
        int32_t row = e / (oh * ow), h0 = e / ow % oh * n[6] + n[8], w0 = e % ow * n[7] + n[9];
        int32_t h1 = h0 + kp < xh ? h0 + kp : xh, w1 = w0 + kq < xw ? w0 + kq : xw;
        const float *image = x + row * xh * xw;
        if (h0 < 0) h0 = 0;
        if (w0 < 0) w0 = 0;
        float v = n[1] ? 0.0f : image[h0 * xw + w0];
        for (int32_t h = h0; h < h1; h++)
            for (int32_t w = w0; w < w1; w++) {
                float u = image[h * xw + w];
                v = n[1] ? v + u : u > v ? u : v;
            }
        y[e] = n[1] ? v / (float)(n[12] ? kp * kq : (h1 - h0) * (w1 - w0)) : v;
    }
}

/* Gradient of a pool: to the first of the largest of each window, or spread; windows ascending. */
void tiled_pool_grad(const int32_t *n, const float *dy, const float *x, float *dx) {
    int32_t eh = n[2], ew = n[3], yh = n[10], yw = n[11], xh = n[18], xw = n[19];
    for (int32_t e = 0; e < n[0] * eh * ew; e++) dx[e] = 0.0f;
    for (int32_t e = 0; e < n[0] * yh * yw; e++) {
        int32_t row = e / (yh * yw), h0 = e / yw % yh * n[6] + n[8], w0 = e % yw * n[7] + n[9];
        int32_t h1 = h0 + n[4] < n[12] ? h0 + n[4] : n[12], w1 = w0 + n[5] < n[13] ? w0 + n[5] : n[13];
        if (h0 < 0) h0 = 0;
        if (w0 < 0) w0 = 0;
        float v = dy[e];
        if (n[1]) {
            v = v / (float)(n[20] ? n[4] * n[5] : (h1 - h0) * (w1 - w0));
        } else {
            const float *image = x + row * xh * xw;
            int32_t best_h = h0, best_w = w0;
            float most = image[(h0 - n[16]) * xw + w0 - n[17]];
            for (int32_t h = h0; h < h1; h++)
                for (int32_t w = w0; w < w1; w++) {
                    float u = image[(h - n[16]) * xw + w - n[17]];
                    if (u > most) most = u, best_h = h, best_w = w;
                }
            h0 = best_h, h1 = best_h + 1, w0 = best_w, w1 = best_w + 1;
        }
        for (int32_t h = h0 > n[14] ? h0 : n[14]; h < h1 && h < n[14] + eh; h++)
            for (int32_t w = w0 > n[15] ? w0 : n[15]; w < w1 && w < n[15] + ew; w++)
                dx[(row * eh + h - n[14]) * ew + w - n[15]] += v;
    }
}

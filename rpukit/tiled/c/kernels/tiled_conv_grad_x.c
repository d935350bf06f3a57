/* Gradient of a convolution's input: each pixel gathers from the windows over it. */
void tiled_conv_grad_x(const int32_t *n, const float *dy, const float *w, float *dx) {
    int32_t ci = n[1], eh = n[2], ew = n[3], kp = n[5], kq = n[6], sh = n[7], sw = n[8], yh = n[14], yw = n[15];
    for (int32_t e = 0; e < n[0] * eh * ew; e++) {
        int32_t row = e / (eh * ew), h = e / ew % eh, at = e % ew, c = row % ci;
        float total = n[17] ? 0.0f : dx[e];
        for (int32_t o = 0; o < n[4]; o++) {
            int32_t ahead = c / n[16] * n[4] + o;
            const float *plane = dy + (row / ci * n[13] + ahead) * yh * yw;
            const float *v = w + (ahead * n[16] + c % n[16]) * kp * kq;
            for (int32_t p = 0; p < kp; p++) {
                int32_t far = h - n[11] - p * n[9];
                if (far < 0 || far % sh || far / sh >= yh) continue;
                for (int32_t q = 0; q < kq; q++) {
                    int32_t wide = at - n[12] - q * n[10];
                    if (wide < 0 || wide % sw || wide / sw >= yw) continue;
                    total = fmaf(plane[far / sh * yw + wide / sw], v[p * kq + q], total);
                }
            }
        }
        dx[e] = total;
    }
}

/* Y = alpha op(A) op(B) + beta C, or Relu of it; up to two axes in front. Chains over k go on where they stopped. */
void tiled_gemm(const int32_t *n, const float *s, const float *a, const float *b, const float *c, float *y) {
    const int32_t depth = n[5], *sa = n + 10, *sb = n + 15, *sc = n + 20, *sy = n + 25;
    for (int32_t row = 0; row < n[0]; row++) {
        int32_t i = row % n[3], q1 = row / n[3] % n[2], q0 = row / n[3] / n[2];
        const float *ra = a + q0 * sa[0] + q1 * sa[1] + i * sa[2], *rb = b + q0 * sb[0] + q1 * sb[1];
        float *ry = y + q0 * sy[0] + q1 * sy[1] + i * sy[2];
        const float *rc = n[9] == 2 ? ry : n[9] ? c + q0 * sc[0] + q1 * sc[1] + i * sc[2] : 0;
        for (int32_t j = 0; j < n[4]; j++) {
            float total = n[6] ? 0.0f : ry[j];
            for (int32_t k0 = 0; k0 < depth; k0 += 16384) { /* chains of a long sum begin anew */
                int32_t k1 = n[8] && k0 + 16384 < depth ? k0 + 16384 : depth;
                float part = n[8] ? 0.0f : total;
                for (int32_t k = k0; k < k1; k++) part = fmaf(ra[k * sa[4]], rb[k * sb[4] + j * sb[3]], part);
                total = !n[8] || (n[6] && k0 == 0) ? part : total + part;
                if (!n[8]) break;
            }
            if (n[7]) {
                total = s[0] * total;
                if (rc) total = fmaf(s[1], rc[n[9] == 2 ? j : j * sc[3]], total);
                if (n[7] == 2) total = total > 0.0f ? total : 0.0f;
            }
            ry[j] = total;
        }
    }
}

/* Y = alpha op(A) op(B) + beta C, or Relu of it; up to two axes in front. Chains over k go on where they stopped. */
typedef struct {
    int32_t rows, batch0, batch1, m, n, k;
    int32_t first, last;      /* begin the sums; end them (2: with Relu) */
    int32_t segmented, added; /* chains of a long sum begin anew; what is added: nothing, C, or Y itself (2) */
    int32_t a[5], b[5], c[5], y[5]; /* strides over (batch0, batch1, m, n, k) */
    float alpha, beta;
} tiled_gemm_t;

enum { SEGMENT = 16384 };

/* Go on with the chains of `wide` neighbouring columns, which share what is read of A. */
static inline void gemm_chains(const float *a, int32_t a_step, const float *b, int32_t b_step, int32_t b_next, int32_t depth,
                               int wide, float *total) {
    for (; depth > 0; depth--, a += a_step, b += b_step)
        LANES total[k] = fma32(*a, b[k * b_next], total[k]);
}

static inline void gemm_columns(const tiled_gemm_t *n, const float *a, const float *b, const float *c, float *y, int wide) {
    int32_t a_step = n->a[4], b_step = n->b[4], b_next = n->b[3], depth = n->k;
    float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int j = 0; j < wide && !n->first; j++) total[j] = y[j];
    if (!n->segmented) {
        gemm_chains(a, a_step, b, b_step, b_next, depth, wide, total);
    } else {
        for (int32_t k = 0; k < depth; k += SEGMENT) {
            float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            int32_t count = depth - k < SEGMENT ? depth - k : SEGMENT;
            gemm_chains(a + k * a_step, a_step, b + k * b_step, b_step, b_next, count, wide, part);
            for (int j = 0; j < wide; j++) total[j] = n->first && k == 0 ? part[j] : total[j] + part[j];
        }
    }
    for (int j = 0; j < wide; j++) {
        float v = total[j];
        if (n->last) {
            v = n->alpha * v;
            if (n->added) v = fma32(n->beta, n->added == 2 ? y[j] : c[j * n->c[3]], v);
            if (n->last == 2) v = v > 0.0f ? v : 0.0f;
        }
        y[j] = v;
    }
}

void tiled_gemm(team_t team, const tiled_gemm_t *n, const float *a, const float *b, const float *c, float *y) {
    share_t own = share(team, n->rows * n->n); /* of elements, since a product often has one row */
    if (own.begin >= own.end) return;
    int32_t row = own.begin / n->n, j = own.begin % n->n;
    for (int32_t left = own.end - own.begin; left > 0; row++, j = 0) {
        int32_t i = row % n->m, q1 = row / n->m % n->batch1, q0 = row / n->m / n->batch1;
        int32_t end = n->n - j < left ? n->n : j + left;
        const float *ra = a + q0 * n->a[0] + q1 * n->a[1] + i * n->a[2], *rb = b + q0 * n->b[0] + q1 * n->b[1];
        const float *rc = n->added == 1 ? c + q0 * n->c[0] + q1 * n->c[1] + i * n->c[2] : y;
        float *ry = y + q0 * n->y[0] + q1 * n->y[1] + i * n->y[2];
        left -= end - j;
        for (; j + 4 <= end; j += 4) gemm_columns(n, ra, rb + j * n->b[3], rc + j * n->c[3], ry + j, 4);
        for (; j + 2 <= end; j += 2) gemm_columns(n, ra, rb + j * n->b[3], rc + j * n->c[3], ry + j, 2);
        for (; j < end; j++) gemm_columns(n, ra, rb + j * n->b[3], rc + j * n->c[3], ry + j, 1);
    }
}

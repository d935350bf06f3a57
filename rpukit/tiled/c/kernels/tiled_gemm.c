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
    if (!n->first)
        LANES total[k] = y[k];
    if (!n->segmented) {
        gemm_chains(a, a_step, b, b_step, b_next, depth, wide, total);
    } else {
        for (int32_t done = 0; done < depth; done += SEGMENT) {
            float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            int32_t count = depth - done < SEGMENT ? depth - done : SEGMENT;
            gemm_chains(a + done * a_step, a_step, b + done * b_step, b_step, b_next, count, wide, part);
            LANES total[k] = n->first && done == 0 ? part[k] : total[k] + part[k];
        }
    }
    if (n->last) {
        float alpha = n->alpha, beta = n->beta;
        int32_t c_step = n->added == 2 ? 1 : n->c[3];
        LANES total[k] = alpha * total[k];
        if (n->added)
            LANES total[k] = fma32(beta, c[k * c_step], total[k]);
        if (n->last == 2)
            LANES total[k] = total[k] > 0.0f ? total[k] : 0.0f;
    }
    LANES y[k] = total[k];
}

void tiled_gemm(team_t team, const tiled_gemm_t *n, const float *a, const float *b, const float *c, float *y) {
    share_t own = share(team, n->rows * n->n); /* of elements, since a product often has one row */
    if (own.begin >= own.end) return;
    int32_t row = own.begin / n->n, j = own.begin % n->n;
    for (int32_t left = own.end - own.begin; left > 0; row++, j = 0) {
        int32_t i = row % n->m, q1 = row / n->m % n->batch1, q0 = row / n->m / n->batch1;
        int32_t end = n->n - j < left ? n->n : j + left;
        const float *ra = a + q0 * n->a[0] + q1 * n->a[1] + i * n->a[2], *rb = b + q0 * n->b[0] + q1 * n->b[1];
        float *ry = y + q0 * n->y[0] + q1 * n->y[1] + i * n->y[2];
        const float *rc = n->added == 1 ? c + q0 * n->c[0] + q1 * n->c[1] + i * n->c[2] : ry;
        int32_t c_step = n->added == 1 ? n->c[3] : 1;
        left -= end - j;
        for (; j + 4 <= end; j += 4) gemm_columns(n, ra, rb + j * n->b[3], rc + j * c_step, ry + j, 4);
        for (; j + 2 <= end; j += 2) gemm_columns(n, ra, rb + j * n->b[3], rc + j * c_step, ry + j, 2);
        for (; j < end; j++) gemm_columns(n, ra, rb + j * n->b[3], rc + j * c_step, ry + j, 1);
    }
}

/* Gradient of a pool: to the first of the largest of each window, or spread; windows ascending. */
typedef struct {
    int32_t planes, mean, eh, ew, kp, kq;    /* of the gradient; window */
    int32_t sh, sw, top, left, yh, yw;       /* strides, the first window's place, the tile of dy */
    int32_t rows, columns;                   /* of the whole input */
    int32_t h_tile, w_tile, h_x, w_x;        /* where the tiles of the gradient and of x begin */
    int32_t xh, xw, include;                 /* the tile of x; a mean divides by the whole window */
} tiled_pool_grad_t;

static inline int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }
static inline int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

void tiled_pool_grad(team_t team, const tiled_pool_grad_t *n, const float *dy, const float *x, float *dx) {
    share_t own = share(team, n->planes);
    int32_t size = n->eh * n->ew, y_size = n->yh * n->yw;
    for (int32_t e = own.begin * size; e < own.end * size; e++) dx[e] = 0.0f;
    for (int32_t plane = own.begin; plane < own.end; plane++)
        for (int32_t i = 0; i < n->yh; i++)
            for (int32_t j = 0; j < n->yw; j++) {
                int32_t h = i * n->sh + n->top, w = j * n->sw + n->left;
                int32_t h0 = larger(h, 0), h1 = smaller(h + n->kp, n->rows);
                int32_t w0 = larger(w, 0), w1 = smaller(w + n->kq, n->columns);
                float v = dy[plane * y_size + i * n->yw + j];
                if (n->mean) {
                    v = v / (float)(n->include ? n->kp * n->kq : (h1 - h0) * (w1 - w0));
                } else {
                    const float *image = x + plane * n->xh * n->xw;
                    int32_t best_h = h0, best_w = w0;
                    float most = image[(h0 - n->h_x) * n->xw + w0 - n->w_x];
                    for (int32_t p = h0; p < h1; p++)
                        for (int32_t q = w0; q < w1; q++) {
                            float u = image[(p - n->h_x) * n->xw + q - n->w_x];
                            if (u > most) most = u, best_h = p, best_w = q;
                        }
                    h0 = best_h, h1 = best_h + 1, w0 = best_w, w1 = best_w + 1;
                }
                for (int32_t p = larger(h0, n->h_tile); p < smaller(h1, n->h_tile + n->eh); p++)
                    for (int32_t q = larger(w0, n->w_tile); q < smaller(w1, n->w_tile + n->ew); q++)
                        dx[plane * size + (p - n->h_tile) * n->ew + q - n->w_tile] += v;
            }
}

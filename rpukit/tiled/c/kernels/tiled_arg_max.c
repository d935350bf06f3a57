/* Index of the largest element along an axis; NaN counts as larger than all numbers. */
typedef struct {
    int32_t rows, length, inner, last; /* last: of equal elements */
} tiled_arg_max_t;

void tiled_arg_max(team_t team, const tiled_arg_max_t *n, const float *x, int64_t *y) {
    share_t own = share(team, n->rows);
    for (int32_t row = own.begin; row < own.end; row++) {
        const float *p = x + row / n->inner * n->length * n->inner + row % n->inner;
        float top = *p;
        y[row] = 0;
        for (int32_t k = 1; k < n->length; k++) {
            float v = p[k * n->inner];
            int more = v > top || (v != v && top == top), equal = v == top || (v != v && top != top);
            if (more || (n->last && equal)) top = v, y[row] = k;
        }
    }
}

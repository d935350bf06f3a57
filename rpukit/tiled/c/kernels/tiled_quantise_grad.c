/* Gradient of rounding: straight through where the integers are between two bounds, else 0. */
typedef struct {
    int32_t elements, low, high;
} tiled_quantise_grad_t;

void tiled_quantise_grad(team_t team, const tiled_quantise_grad_t *n, const float *dy, const int8_t *q, float *dx) {
    share_t own = share(team, n->elements);
    for (int32_t i = own.begin; i < own.end; i++) dx[i] = n->low < q[i] && q[i] < n->high ? dy[i] : 0.0f;
}

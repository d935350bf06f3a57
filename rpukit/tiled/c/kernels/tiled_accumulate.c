/* The gradient itself where `reset` says so, else the sum with it. */
typedef struct {
    int32_t elements;
} tiled_accumulate_t;

void tiled_accumulate(team_t team, const tiled_accumulate_t *n, float *total, const float *gradient, const uint8_t *reset) {
    share_t own = share(team, n->elements);
    int anew = *reset;
    for (int32_t i = own.begin; i < own.end; i++) total[i] = anew ? gradient[i] : total[i] + gradient[i];
}

/* Weights of samples: that of the label's class, 0 for the class to ignore, NaN for a label out of range. */
typedef struct {
    int32_t samples, n_class, weighted, ignores, ignored;
} tiled_label_weights_t;

void tiled_label_weights(team_t team, const tiled_label_weights_t *n, const int64_t *labels, const float *weights, float *y) {
    share_t own = share(team, n->samples);
    for (int32_t i = own.begin; i < own.end; i++) {
        float v = EXACT_NAN;
        if (0 <= labels[i] && labels[i] < n->n_class) v = n->weighted ? weights[labels[i]] : 1.0f;
        y[i] = n->ignores && labels[i] == n->ignored ? 0.0f : v;
    }
}

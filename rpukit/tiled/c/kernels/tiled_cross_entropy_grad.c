/* Weight (exp(logprob) - onehot) / total, without exp for the gradient of the log-probabilities. */
typedef struct {
    int32_t samples, classes, class0, n_class;  /* of the tile; its first class; of all */
    int32_t weighted, total_given, of_log_prob; /* which inputs there are; which gradient it is */
    float total;
} tiled_cross_entropy_grad_t;

void tiled_cross_entropy_grad(team_t team, const tiled_cross_entropy_grad_t *n, const float *logprob,
                              const int64_t *labels, float *y, const float *weights, const float *total_weight) {
    share_t own = share(team, n->samples);
    float total = n->total_given ? *total_weight : n->total;
    for (int32_t i = own.begin; i < own.end; i++) {
        int known = 0 <= labels[i] && labels[i] < n->n_class;
        for (int32_t c = 0, e = i * n->classes; c < n->classes; c++, e++) {
            float v = (n->of_log_prob ? 0.0f : exact_exp(logprob[e])) - (n->class0 + c == labels[i] ? 1.0f : 0.0f);
            if (n->weighted) v = weights[i] * v;
            v = known ? v / total : EXACT_NAN;
            y[e] = n->weighted && weights[i] == 0.0f ? 0.0f : v;
        }
    }
}

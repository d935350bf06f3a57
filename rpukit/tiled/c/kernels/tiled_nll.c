/* Mean negative log-likelihood of labels, samples ascending; a label out of range gives NaN, a weight of 0 leaves out. */
typedef struct {
    int32_t rows, samples, classes, first, last, weighted, total_given;
    float total;
} tiled_nll_t;

void tiled_nll(team_t team, const tiled_nll_t *n, const float *logprob, const int64_t *labels, float *loss,
               const float *weights, const float *total_weight) {
    if (team.core > 0) return; /* one chain */
    float total = n->first ? 0.0f : *loss;
    for (int32_t i = 0; i < n->samples; i++) {
        float p = 0 <= labels[i] && labels[i] < n->classes ? logprob[i * n->classes + labels[i]] : EXACT_NAN;
        if (!n->weighted) total -= p;
        else if (weights[i] != 0.0f) total = fma32(-weights[i], p, total);
    }
    *loss = n->last ? total / (n->total_given ? *total_weight : n->total) : total;
}

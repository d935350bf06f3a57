/* The gradient itself where `reset` says so, else the sum with it. */
void tiled_accumulate(const int32_t *n, float *total, const float *gradient, const uint8_t *reset) {
    for (int32_t i = 0; i < n[0]; i++) total[i] = *reset ? gradient[i] : total[i] + gradient[i];
}

/* Rows of a part of a table by their indices; NaN at first where the row is in no part so far. */
typedef struct {
    int32_t rows, width, begin, size, first;
} tiled_gather_rows_t;

void tiled_gather_rows(team_t team, const tiled_gather_rows_t *n, const float *table, const int64_t *indices, float *y) {
    share_t own = share(team, n->rows);
    for (int32_t i = own.begin; i < own.end; i++) {
        int64_t k = indices[i] - n->begin;
        float *row = y + (int64_t)i * n->width;
        if (0 <= k && k < n->size)
            for (int32_t j = 0; j < n->width; j++) row[j] = table[k * n->width + j];
        else if (n->first)
            for (int32_t j = 0; j < n->width; j++) row[j] = EXACT_NAN;
    }
}

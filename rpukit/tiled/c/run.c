/* Runs the steps of a program, in order. */
#include "dma.h"
#include "kernels.h"
#include "network.h"

static void start(const copy_t *c) {
    const loop_t none = {1, 0, 0};
    int n = c->loops[2].n ? 3 : c->loops[1].n ? 2 : 1; /* axes around the rows' bytes */
    loop_t rows = c->loops[n - 1], mid = n > 1 ? c->loops[n - 2] : none, far = n > 2 ? c->loops[0] : none;
    uint8_t inner = c->to.level > c->from.level ? c->to.level : c->from.level;
    dma_begin(c->token, inner, c->inward);
    for (uint32_t i = 0; i < far.n; i++)
        for (uint32_t j = 0; j < mid.n; j++) {
            uint8_t *to = arenas[c->to.level] + c->to.at + i * far.to + j * mid.to;
            const uint8_t *from = arenas[c->from.level] + c->from.at + i * far.from + j * mid.from;
            if (rows.n == 1) dma_start_1d(c->token, to, from, c->row_bytes);
            else dma_start_2d(c->token, to, rows.to, from, rows.from, c->row_bytes, rows.n);
        }
    dma_commit(c->token);
}

static void compute(const tile_t *t, const int32_t *n, const float *s) {
    void *p[8];
    (void)s; /* where no kernel of this network takes floats */
    for (int k = 0; k < 8; k++) p[k] = t->at[k] < 0 ? 0 : arenas[N_LEVELS - 1] + t->at[k];
    switch (t->kernel) {
    /* kernels */
    }
    dma_compute(t->cycles);
}

void run_program(const program_t *program) {
    for (uint32_t k = 0; k < program->n_steps; k++) {
        const step_t *step = &program->steps[k];
        if (step->kind == STEP_COPY) start(&step->u.copy);
        else if (step->kind == STEP_WAIT) dma_wait(step->u.wait);
        else compute(&step->u.tile, program->ints + step->u.tile.ints, program->floats + step->u.tile.floats);
    }
    dma_end_of_program();
}

/* Weak defaults of dma.h and target.h: one core that copies by itself. */
#include "dma.h"
#include "target.h"

#define WEAK __attribute__((weak))

WEAK void target_write(uint8_t *to, const void *from, uint32_t bytes) {
    const uint8_t *source = from;
    if ((((uintptr_t)to | (uintptr_t)source | bytes) & 3) == 0) {
        uint32_t *words = (uint32_t *)(void *)to;
        const uint32_t *own = from;
        for (uint32_t k = 0; k < bytes / 4; k++) words[k] = own[k];
    } else {
        for (uint32_t k = 0; k < bytes; k++) to[k] = source[k];
    }
}

WEAK void target_read(void *to, const uint8_t *from, uint32_t bytes) { target_write(to, from, bytes); }

WEAK void target_clear(uint8_t *to, uint32_t bytes) {
    for (uint32_t k = 0; k < bytes; k++) to[k] = 0;
}

WEAK void target_fork(void (*work)(void *task, int core, int n_cores), void *task) { work(task, 0, 1); }
WEAK void target_begin(int argc, char **argv) { (void)argc, (void)argv; }
WEAK void target_text(const char *text) { (void)text; }
WEAK uint32_t target_ticks(void) { return 0; }
WEAK uint32_t target_stack_bytes(void) { return 0; }
WEAK void target_end(int status) { (void)status; }

WEAK void dma_begin(int token, int level, int inward) { (void)token, (void)level, (void)inward; }

WEAK void dma_start_1d(int token, uint8_t *to, const uint8_t *from, uint32_t bytes) {
    (void)token;
    target_write(to, from, bytes);
}

WEAK void dma_start_2d(int token, uint8_t *to, uint32_t to_stride, const uint8_t *from, uint32_t from_stride,
                       uint32_t row_bytes, uint32_t rows) {
    for (uint32_t r = 0; r < rows; r++) dma_start_1d(token, to + r * to_stride, from + r * from_stride, row_bytes);
}

WEAK void dma_commit(int token) { (void)token; }
WEAK void dma_wait(int token) { (void)token; }
WEAK void dma_compute(uint32_t cycles) { (void)cycles; }
WEAK void dma_end_of_program(void) {}

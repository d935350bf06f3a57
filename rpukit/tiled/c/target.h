/* What a target provides beside dma.h. All have weak defaults in defaults.c. */
#ifndef TARGET_H
#define TARGET_H

#include <stdint.h>

/* Calls work(task, core, n_cores) once for each of n_cores cores, at the same time or not, and returns when all are
 * done. Default: this core alone. Any number of cores gives the same bits. */
void target_fork(void (*work)(void *task, int core, int n_cores), void *task);

/* Memory of the outermost level, where the processor may not reach it by itself. Default: it does. */
void target_write(uint8_t *to, const void *from, uint32_t bytes);
void target_read(void *to, const uint8_t *from, uint32_t bytes);
void target_clear(uint8_t *to, uint32_t bytes);

/* For the example in main.c. */
void target_begin(int argc, char **argv);
void target_text(const char *text);
uint32_t target_ticks(void);        /* instructions, cycles or microseconds: what the target counts */
uint32_t target_stack_bytes(void);  /* deepest stack so far; 0: unknown */
void target_end(int status);

#endif

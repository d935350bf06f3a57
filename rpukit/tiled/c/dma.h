/* Transfers between the levels of memory. A target puts its own functions in the place of the weak ones of defaults.c,
 * which copy at once; targets/host has them in software with checks of every transfer.
 *
 * One transfer has one token from dma_begin to the end of dma_wait; its pieces, of one or two dimensions, are started in
 * between. Tokens are small numbers below N_TOKENS. */
#ifndef DMA_H
#define DMA_H

#include <stdint.h>

/* level: the inner one of the two; inward: towards the kernels. */
void dma_begin(int token, int level, int inward);
void dma_start_1d(int token, uint8_t *to, const uint8_t *from, uint32_t bytes);
void dma_start_2d(int token, uint8_t *to, uint32_t to_stride, const uint8_t *from, uint32_t from_stride,
                  uint32_t row_bytes, uint32_t rows);
void dma_commit(int token);
void dma_wait(int token);

/* Called by the network around its work: cycles of a tile in the model, and the end of a program. */
void dma_compute(uint32_t cycles);
void dma_end_of_program(void);

#endif

/* What main.c asks of the software transfers beside dma.h. */
#ifndef DMA_HOST_H
#define DMA_HOST_H

#include "dma.h"

enum { DMA_AT_ISSUE, DMA_AT_WAIT, DMA_MIXED };

void dma_set_mode(int mode, uint32_t seed);
uint64_t dma_now(void); /* cycles of the timing model so far */

#endif

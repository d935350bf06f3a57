/* Depth of the stack: it is painted at the start, and what is still painted was never used. */
#ifndef STACK_H
#define STACK_H

#include <stdint.h>

#define STACK_PAINT 0x5aa55aa5u

extern uint32_t stack_begin[], stack_end[]; /* of the linker script; the stack grows down from its end */

static inline uint32_t stack_used(const uint32_t *begin, const uint32_t *end) {
    const uint32_t *at = begin;
    while (at < end && *at == STACK_PAINT) at++;
    return 4 * (uint32_t)(end - at);
}

#endif

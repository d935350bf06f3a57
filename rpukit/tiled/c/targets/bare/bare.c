/* What compilers call by themselves, for targets without a C library. */
#include <stddef.h>
#include <stdint.h>

__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memset(void *to, int value, size_t bytes) {
    for (uint8_t *at = to; bytes > 0; bytes--) *at++ = (uint8_t)value;
    return to;
}

__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memcpy(void *to, const void *from, size_t bytes) {
    uint8_t *at = to;
    for (const uint8_t *source = from; bytes > 0; bytes--) *at++ = *source++;
    return to;
}

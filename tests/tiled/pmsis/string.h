/* The part of string.h that targets/siracusa uses, for a compiler without a C library. */
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t bytes);

/* Where arenas and weights lie: the innermost level in fast memory, the others in slow memory. */
#define FAST_ARENA __attribute__((section(".fast_arena")))
#define SLOW_ARENA __attribute__((section(".slow_arena")))
#define ARENA_0 SLOW_ARENA
#if N_LEVELS == 2
#define ARENA_1 FAST_ARENA
#else
#define ARENA_1 SLOW_ARENA
#define ARENA_2 FAST_ARENA
#endif
#define WEIGHTS __attribute__((section(".weights")))
#define BATCHES __attribute__((section(".batches"))) /* of the example */

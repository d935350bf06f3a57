/* Arenas are not cleared at the start: network_begin does it. */
#define ARENA_0 __attribute__((section(".arena_0")))
#define ARENA_1 __attribute__((section(".arena_1")))
#define ARENA_2 __attribute__((section(".arena_2")))
#define WEIGHTS __attribute__((section(".weights")))
#define BATCHES __attribute__((section(".batches"))) /* of the example */

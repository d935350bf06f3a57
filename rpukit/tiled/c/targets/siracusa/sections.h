/* Memories of a PULP chip: L1 of the cluster, L2, and external RAM, which is reached by transfers alone. */
#include "pmsis.h"

#ifndef L3_BASE
#define L3_BASE 0 /* where the network's part of the external RAM begins */
#endif
#if N_LEVELS == 2
#define ARENA_0 PI_L2
#define ARENA_1 PI_L1
#else
#define ARENA_0_AT (uintptr_t)L3_BASE
#define ARENA_1 PI_L2
#define ARENA_2 PI_L1
#endif
#define WEIGHTS PI_L2
#define BATCHES PI_L2

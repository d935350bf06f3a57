/* Siracusa and other PULP chips under PMSIS: call the network from core 0 of the cluster. */
#ifndef SIRACUSA_H
#define SIRACUSA_H

#include "pmsis.h"

/* The external RAM, open; needed by plans over three levels. */
extern struct pi_device *network_ram;

/* Cores of the cluster that share the work; 0: all. */
extern int network_cores;

#endif

/* Memory of the stand-in for PMSIS. */
#include "pmsis.h"

uint8_t stand_in_ram[1 << 22];
int stand_in_core, stand_in_cores;

/* The example's main under the name that example.c calls. */
#define main network_example
#include "../../main.c"

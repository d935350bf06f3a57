/* Opens the external RAM and the cluster, and runs the example there. */
#include "siracusa.h"
#include "target.h"

#include "bsp/bsp.h"
#include "bsp/ram.h"

#include <stdio.h>

int network_example(int argc, char **argv);

static int status;

static void enter(void *unused) {
    (void)unused;
    status = network_example(0, 0);
}

void target_text(const char *text) { printf("%s", text); }

uint32_t target_ticks(void) { return pi_perf_read(PI_PERF_CYCLES); }

void target_begin(int argc, char **argv) {
    (void)argc, (void)argv;
    pi_perf_conf(1 << PI_PERF_CYCLES);
    pi_perf_reset();
    pi_perf_start();
}

int main(void) {
    static struct pi_device cluster, ram;
    static struct pi_default_ram_conf ram_conf;
    struct pi_cluster_conf conf;
    struct pi_cluster_task task;
    pi_default_ram_conf_init(&ram_conf);
    pi_open_from_conf(&ram, &ram_conf);
    if (pi_ram_open(&ram)) return 2;
    network_ram = &ram;
    pi_cluster_conf_init(&conf);
    pi_open_from_conf(&cluster, &conf);
    if (pi_cluster_open(&cluster)) return 2;
    pi_cluster_task(&task, enter, 0);
    pi_cluster_send_task_to_cl(&cluster, &task);
    pi_cluster_close(&cluster);
    return status;
}

/* The host: cores are threads, ticks are the cycles of the timing model.
 * Usage: network [at_issue | at_wait | mixed SEED], with the number of cores in the variable CORES. */
#define _POSIX_C_SOURCE 200809L

#include "dma_host.h"
#include "target.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CORES = 64 };

typedef struct { void (*work)(void *task, int core, int n_cores); void *task; int core; } part_t;

static int n_cores = 1;

static void *run(void *part) {
    part_t *own = part;
    own->work(own->task, own->core, n_cores);
    return 0;
}

void target_fork(void (*work)(void *task, int core, int n_cores), void *task) {
    pthread_t threads[MOST_CORES];
    part_t parts[MOST_CORES];
    for (int core = 1; core < n_cores; core++) {
        parts[core] = (part_t){work, task, core};
        if (pthread_create(&threads[core], 0, run, &parts[core])) {
            fprintf(stderr, "cannot start a thread for core %d\n", core);
            exit(2);
        }
    }
    work(task, 0, n_cores);
    for (int core = 1; core < n_cores; core++) pthread_join(threads[core], 0);
}

void target_begin(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "at_issue", *cores = getenv("CORES");
    int wanted = !strcmp(mode, "at_wait") ? DMA_AT_WAIT : !strcmp(mode, "mixed") ? DMA_MIXED : DMA_AT_ISSUE;
    dma_set_mode(wanted, argc > 2 ? (uint32_t)atoi(argv[2]) : 1u);
    if (cores) n_cores = atoi(cores);
    if (n_cores < 1 || n_cores > MOST_CORES) {
        fprintf(stderr, "CORES: got %s, need 1 to %d\n", cores, MOST_CORES);
        exit(2);
    }
}

void target_text(const char *text) { fputs(text, stdout); }
uint32_t target_ticks(void) { return (uint32_t)dma_now(); }

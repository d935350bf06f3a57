/* Trains on the host: mini-batches from inputs.bin, weights from weights.bin, and what must come out
 * from expected.bin. Usage: network [at_issue | at_wait | mixed SEED] */
#include "data.h"
#include "dma_host.h"
#include "optimizer_network.h"
#include "training_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_file(const char *name, uint8_t *to, size_t bytes) {
    FILE *file = fopen(name, "rb");
    if (!file || fread(to, 1, bytes, file) != bytes) {
        fprintf(stderr, "cannot read %zu bytes of %s\n", bytes, name);
        exit(2);
    }
    fclose(file);
}

static uint8_t *home(const tensor_t *t) { return arenas[t->level] + t->at; }

static uint8_t inputs[INPUT_BYTES], weights[WEIGHT_BYTES], expected[EXPECTED_BYTES];

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "at_issue";
    int wanted = !strcmp(mode, "at_wait") ? DMA_AT_WAIT : !strcmp(mode, "mixed") ? DMA_MIXED : DMA_AT_ISSUE;
    dma_set_mode(wanted, argc > 2 ? (uint32_t)atoi(argv[2]) : 1u);
    read_file("inputs.bin", inputs, INPUT_BYTES);
    read_file("weights.bin", weights, WEIGHT_BYTES);
    read_file("expected.bin", expected, EXPECTED_BYTES);
    for (uint32_t k = 0; k < N_LEVELS; k++) memset(arenas[k], k ? 0xff : 0, arena_bytes[k]);
    for (uint32_t k = 0, at = 0; k < N_WEIGHTS; at += weight_tensors[k++].bytes)
        memcpy(home(&weight_tensors[k]), weights + at, weight_tensors[k].bytes);

    uint64_t train_cycles = 0, opt_cycles = 0;
    uint32_t wrong = 0, at = 0;
    for (uint32_t step = 0; step < N_STEPS; step++) {
        for (uint32_t k = 0; k < N_INPUTS; at += input_tensors[k++].bytes)
            memcpy(home(&input_tensors[k]), inputs + at, input_tensors[k].bytes);
        *home(&reset_tensor) = step % N_ACCUMULATE == 0;
        uint64_t begin = dma_now();
        run_program(&training_network);
        train_cycles += dma_now() - begin;
        float loss, right;
        memcpy(&loss, home(&loss_tensor), 4);
        memcpy(&right, expected + 4 * step, 4);
        int same = !memcmp(&loss, &right, 4);
        wrong += !same;
        printf("step %u loss %.6f expected %.6f %s\n", (unsigned)step, (double)loss, (double)right, same ? "ok" : "DIFFERS");
        if ((step + 1) % N_ACCUMULATE == 0) {
            begin = dma_now();
            run_program(&optimizer_network);
            opt_cycles += dma_now() - begin;
        }
    }
    for (uint32_t k = 0, from = 4 * N_STEPS; k < N_FINAL; from += final_tensors[k++].bytes)
        if (memcmp(home(&final_tensors[k]), expected + from, final_tensors[k].bytes)) {
            printf("tensor %s DIFFERS\n", final_tensors[k].name);
            wrong++;
        }
    printf("BENCH train_cycles=%llu opt_cycles=%llu errors=%u\n", (unsigned long long)train_cycles,
           (unsigned long long)opt_cycles, (unsigned)wrong);
    return wrong != 0;
}

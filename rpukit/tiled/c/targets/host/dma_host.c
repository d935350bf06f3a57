/* Transfers in software. They are done at issue, at wait, or at random moments in random order by a
 * seed; what is not there yet is NaN. Bounds, tokens and the cycles of the timing model are checked
 * and counted for every transfer; a fault ends the program with its name. */
#include "dma_host.h"

#include "network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint8_t *to; const uint8_t *from; uint32_t to_stride, from_stride, row_bytes, rows; } piece_t;
typedef struct { int state, level, inward, n; uint64_t bytes, rows, end; piece_t pieces[MOST_PIECES]; } transfer_t;
enum { FREE, OPEN, PENDING, DONE }; /* of a token */

static transfer_t transfers[N_TOKENS];
static uint64_t now, engine_free[N_LEVELS][2];
static int mode;
static uint32_t seed = 1;

static void fault(const char *name, int token) {
    fprintf(stderr, "DMA FAULT: %s (token %d)\n", name, token);
    exit(3);
}

static uint32_t draw(void) { /* xorshift */
    seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
    return seed;
}

void dma_set_mode(int wanted, uint32_t wanted_seed) { mode = wanted, seed = wanted_seed ? wanted_seed : 1; }
uint64_t dma_now(void) { return now; }
void dma_compute(uint32_t cycles) { now += cycles; }

/* Whether bytes lie in one block of the plan; in the outermost level, in the arena. */
static int within_block(const uint8_t *p, uint32_t bytes) {
    for (uint32_t k = 0; k < n_blocks; k++) {
        const uint8_t *begin = arenas[blocks[k].level] + blocks[k].begin;
        if (p >= begin && p + bytes <= begin + blocks[k].bytes) return 1;
    }
    return p >= arenas[0] && p + bytes <= arenas[0] + arena_bytes[0];
}

static void move(transfer_t *t) {
    for (int k = 0; k < t->n; k++) {
        piece_t *p = &t->pieces[k];
        for (uint32_t r = 0; r < p->rows; r++)
            memcpy(p->to + r * p->to_stride, p->from + r * p->from_stride, p->row_bytes);
    }
    t->state = DONE;
}

static void some_moves(void) {
    for (int k = 0; k < N_TOKENS; k++) {
        int token = (int)(draw() % N_TOKENS);
        if (transfers[token].state == PENDING && draw() % 3 == 0) move(&transfers[token]);
    }
}

void dma_begin(int token, int level, int inward) {
    if (token < 0 || token >= N_TOKENS) fault("unknown token", token);
    transfer_t *t = &transfers[token];
    if (t->state != FREE) fault("token reused before its wait", token);
    t->state = OPEN, t->level = level, t->inward = inward, t->n = 0, t->bytes = t->rows = 0;
}

void dma_start_2d(int token, uint8_t *to, uint32_t to_stride, const uint8_t *from, uint32_t from_stride,
                  uint32_t row_bytes, uint32_t rows) {
    transfer_t *t = &transfers[token];
    if (t->state != OPEN || t->n == MOST_PIECES) fault("start without begin, or too many pieces", token);
    uint32_t to_bytes = (rows - 1) * to_stride + row_bytes, from_bytes = (rows - 1) * from_stride + row_bytes;
    if (!within_block(to, to_bytes) || !within_block(from, from_bytes)) fault("slot too short", token);
    t->pieces[t->n++] = (piece_t){to, from, to_stride, from_stride, row_bytes, rows};
    t->bytes += (uint64_t)row_bytes * rows, t->rows += rows;
    if (mode != DMA_AT_ISSUE)
        for (uint32_t r = 0; r < rows; r++) memset(to + r * to_stride, 0xff, row_bytes);
}

void dma_start_1d(int token, uint8_t *to, const uint8_t *from, uint32_t bytes) {
    dma_start_2d(token, to, bytes, from, bytes, bytes, 1);
}

void dma_commit(int token) {
    transfer_t *t = &transfers[token];
    if (t->state != OPEN) fault("commit without begin", token);
    const link_t *l = &links[t->level];
    uint64_t *engine = &engine_free[t->level][l->duplex ? t->inward : 0];
    uint64_t start = *engine > now ? *engine : now;
    t->end = *engine = start + l->setup + t->rows * l->row + (t->bytes + l->width - 1) / l->width;
    t->state = PENDING;
    if (mode == DMA_AT_ISSUE) move(t);
    if (mode == DMA_MIXED) some_moves();
}

void dma_wait(int token) {
    if (token < 0 || token >= N_TOKENS) fault("unknown token", token);
    transfer_t *t = &transfers[token];
    if (t->state == FREE || t->state == OPEN) fault("wait for a transfer that was not begun", token);
    if (mode == DMA_MIXED) some_moves();
    if (t->state == PENDING) move(t);
    if (t->end > now) now = t->end;
    t->state = FREE;
}

void dma_end_of_program(void) {
    for (int k = 0; k < N_TOKENS; k++)
        if (transfers[k].state != FREE) fault("missing wait", k);
}

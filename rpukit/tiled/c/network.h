/* A program is a list of steps: begin a transfer, wait for one, compute a tile. Everything that a
 * step needs stands in it: addresses are bytes from the start of a level's arena. */
#ifndef NETWORK_H
#define NETWORK_H

#include "sizes.h" /* N_LEVELS, N_TOKENS, MOST_PIECES */

#include <stdint.h>

typedef struct { uint8_t level; uint32_t at; } place_t;
typedef struct { uint32_t n, to, from; } loop_t; /* how often, and how far each side goes on */

typedef struct {
    uint8_t token, inward;
    place_t to, from;
    uint32_t row_bytes;
    loop_t loops[3]; /* outermost first; the last counts rows; n = 0: there is none */
} copy_t;

typedef struct {
    uint8_t kernel;
    uint32_t cycles, ints, floats; /* where its numbers begin in the tables */
    int32_t at[8];                 /* its buffers in the innermost level; -1: it has none */
} tile_t;

typedef struct {
    enum { STEP_COPY, STEP_WAIT, STEP_TILE } kind;
    union { copy_t copy; uint8_t wait; tile_t tile; } u;
} step_t;

typedef struct { const step_t *steps; uint32_t n_steps; const int32_t *ints; const float *floats; } program_t;
typedef struct { uint8_t level; uint32_t begin, bytes; } block_t;
typedef struct { uint32_t setup, row, width; uint8_t duplex; } link_t;

#define ROW(n, to, from) {n, to, from}
#define MOVE(inward, token, to_level, to, from_level, from, bytes, ...) \
    {STEP_COPY, {.copy = {token, inward, {to_level, to}, {from_level, from}, bytes, {__VA_ARGS__}}}}
#define IN(token, to_level, to, from_level, from, bytes, ...) \
    MOVE(1, token, to_level, to, from_level, from, bytes, __VA_ARGS__)
#define OUT(token, to_level, to, from_level, from, bytes, ...) \
    MOVE(0, token, to_level, to, from_level, from, bytes, __VA_ARGS__)
#define WAIT(token) {STEP_WAIT, {.wait = token}}
#define TILE(kernel, cycles, ints, floats, ...) {STEP_TILE, {.tile = {kernel, cycles, ints, floats, {__VA_ARGS__}}}}

extern uint8_t *const arenas[N_LEVELS];
extern const uint32_t arena_bytes[N_LEVELS];
extern const block_t blocks[]; /* slots and resident tensors of the inner levels */
extern const uint32_t n_blocks;
extern const link_t links[N_LEVELS];

void run_program(const program_t *program);

#endif

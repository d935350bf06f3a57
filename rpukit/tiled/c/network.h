/* Training by a plan. A program is a list of 16-bit words: waits, copies, tiles, loops. What they have in common stands in
 * tables.c; addresses are counted from the start of a level's arena, in units of UNIT bytes. */
#ifndef NETWORK_H
#define NETWORK_H

#include "sizes.h"
#include "team.h"

#include <stdint.h>

typedef struct { const char *name; uint8_t level; uint32_t at, bytes; } tensor_t;

void network_begin(void);                                   /* arenas cleared, weights and constants in place */
void network_write_inputs(const void *const inputs[N_INPUTS]); /* in the order of input_tensors */
float network_train(int reset); /* one mini-batch: its loss; gradients are added to those before unless reset */
void network_update(void);      /* a step of the optimiser */

extern const tensor_t input_tensors[N_INPUTS], weight_tensors[N_WEIGHTS], final_tensors[N_FINAL], reset_tensor, loss_tensor;
const void *network_weight(uint32_t k); /* of weight_tensors; 0: zeros. Weak: weights may come from elsewhere */

/* Programs */
enum { STEP_WAIT, STEP_COPY, STEP_TILE, STEP_LOOP };
#define WAIT(token) STEP_WAIT | (token) << 2
#define COPY(token, shape, to, from) STEP_COPY | (token) << 2, shape, to, from
#define TILE(tile, ...) STEP_TILE | (tile) << 2, __VA_ARGS__
/* The words of the body follow, then how far its addresses go on in each turn: for 16 addresses a bit each, and the
 * steps of those whose bit is set, in as many words as the address. Addresses of a loop within the body count once. */
#define LOOP(turns, body, steps) STEP_LOOP | (turns) << 2, body, steps
#define NEAR(at) (at) / UNIT                            /* in a level of which one word is enough */
#define FAR(at) (at) / UNIT & 0xffff, (at) / UNIT >> 16 /* two words, the low one first */

typedef struct { copy_number_t n, to, from; } loop_t; /* how often, and how far each side goes on */
typedef struct {
    uint8_t to_level, from_level;
    copy_number_t row_bytes;
    loop_t loops[N_LOOPS]; /* outermost first; the last counts rows; n = 0: there is none */
} copy_t;
typedef struct { uint8_t kernel; buffer_set_t buffers; uint16_t numbers; uint32_t cycles; } tile_t;
typedef struct { uint8_t level; uint32_t begin, bytes; } block_t;
typedef struct { uint32_t setup, row, width; uint8_t duplex; } link_t;
typedef struct { const uint16_t *words; uint32_t n; } program_t;

extern const program_t training_network, optimizer_network;
extern const copy_t copies[];
extern const tile_t tiles[];
extern uint8_t *const arenas[N_LEVELS];
extern const uint32_t arena_bytes[N_LEVELS];
extern const block_t blocks[]; /* slots and resident tensors of the inner levels */
extern const uint32_t n_blocks;
extern const link_t links[N_LEVELS];

void compute_tile(team_t team, const tile_t *tile, void *const *p); /* a core's part of a tile; p: its buffers */
void run_program(const program_t *program);

#endif

/* Transfers by a PL081, a controller with two channels: channel 0 inwards, channel 1 outwards. The pieces of a transfer
 * are a linked list that a channel goes through by itself; a channel begins a transfer when the one before has ended. */
#include "dma.h"
#include "network.h"

enum { MOST_ITEMS = 32, MOST_UNITS = 4095 }; /* units of an item: its field has 12 bits */

typedef struct { uint32_t from, to, next, control; } item_t; /* as the controller reads it */
typedef struct { volatile uint32_t from, to, next, control, configuration, unused[3]; } channel_t;
/* One half of the items is filled as the other is read. */
typedef struct { item_t items[2][MOST_ITEMS]; uint32_t n, half; int owner; } list_t; /* owner: its token + 1 */

enum { CONTROLLER = 0x30, CHANNELS = 0x100, ENABLE = 1, STEP_BOTH = 3 << 26, WORDS = 2 << 18 | 2 << 21 };

static list_t lists[2];
static uint8_t direction[N_TOKENS];

static volatile uint32_t *controller(uint32_t offset) { return (volatile uint32_t *)(PL081 + offset); }
static channel_t *channel(uint32_t k) { return (channel_t *)(PL081 + CHANNELS + 0x20 * k); }

static void finish(uint32_t k) {
    while (channel(k)->configuration & ENABLE) {}
    lists[k].owner = 0;
}

static void begin_list(uint32_t k) {
    list_t *list = &lists[k];
    item_t *first = list->items[list->half];
    finish(k);
    if (!list->n) return;
    first[list->n - 1].next = 0;
    __asm__ volatile("dsb" ::: "memory");
    *controller(CONTROLLER) = ENABLE;
    channel(k)->from = first->from, channel(k)->to = first->to;
    channel(k)->next = first->next, channel(k)->control = first->control;
    channel(k)->configuration = ENABLE; /* from memory to memory */
    list->n = 0, list->half ^= 1;
}

static void add(uint32_t k, uint32_t to, uint32_t from, uint32_t units, uint32_t width) {
    list_t *list = &lists[k];
    if (list->n == MOST_ITEMS) begin_list(k);
    item_t *item = &list->items[list->half][list->n++];
    *item = (item_t){from, to, (uint32_t)(item + 1), units | STEP_BOTH | width};
}

void dma_begin(int token, int level, int inward) {
    (void)level;
    direction[token] = !inward;
}

void dma_start_1d(int token, uint8_t *to, const uint8_t *from, uint32_t bytes) {
    uint32_t at = (uint32_t)to, source = (uint32_t)from, words = ((at | source | bytes) & 3) == 0;
    for (uint32_t left = words ? bytes / 4 : bytes; left > 0;) {
        uint32_t units = left < MOST_UNITS ? left : MOST_UNITS, size = words ? 4 * units : units;
        add(direction[token], at, source, units, words ? WORDS : 0);
        at += size, source += size, left -= units;
    }
}

void dma_start_2d(int token, uint8_t *to, uint32_t to_stride, const uint8_t *from, uint32_t from_stride,
                  uint32_t row_bytes, uint32_t rows) {
    for (uint32_t r = 0; r < rows; r++) dma_start_1d(token, to + r * to_stride, from + r * from_stride, row_bytes);
}

void dma_commit(int token) {
    begin_list(direction[token]);
    lists[direction[token]].owner = token + 1;
}

void dma_wait(int token) {
    if (lists[direction[token]].owner == token + 1) finish(direction[token]);
}

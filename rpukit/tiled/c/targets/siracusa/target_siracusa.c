/* Transfers between L2 and L1 by the cluster's DMA, between external RAM and L2 by the RAM's driver. Both engines take
 * rows that lie apart on the outer side and packed on the inner side; other pieces go row by row. */
#include "dma.h"
#include "network.h"
#include "siracusa.h"
#include "target.h"

#include <string.h>

enum { MOST_COMMANDS = 12, LARGEST = 65532 }; /* pending at once: the engine has 16 counters; bytes of a command */

static struct { uint8_t inward, outer; } transfers[N_TOKENS];
static struct { int owner; pi_cl_dma_cmd_t command; } cl[MOST_COMMANDS]; /* owner: its token + 1; 0: free */
static struct { int owner; pi_cl_ram_req_t request; } ram[MOST_COMMANDS];

struct pi_device *network_ram;
int network_cores;

/* Waits for the commands of an owner, or of all. */
static void finish(int owner, int all) {
    for (int k = 0; k < MOST_COMMANDS; k++) {
        if (cl[k].owner && (all || cl[k].owner == owner)) pi_cl_dma_cmd_wait(&cl[k].command), cl[k].owner = 0;
        if (ram[k].owner && (all || ram[k].owner == owner)) pi_cl_ram_copy_wait(&ram[k].request), ram[k].owner = 0;
    }
}

void dma_begin(int token, int level, int inward) {
    transfers[token].inward = inward != 0, transfers[token].outer = level < N_LEVELS - 1;
}

/* One command: rows of `length` bytes, `stride` apart on the outer side, `size` bytes in all. */
static void command(int token, uint32_t outer, uint32_t inner, uint32_t size, uint32_t stride, uint32_t length) {
    int inward = transfers[token].inward, outside = transfers[token].outer, k = 0;
    while (k < MOST_COMMANDS && (outside ? ram[k].owner : cl[k].owner)) k++;
    if (k == MOST_COMMANDS) finish(0, 1), k = 0; /* a transfer may end before somebody waits for it */
    if (outside) {
        ram[k].owner = token + 1;
        pi_cl_ram_copy_2d(network_ram, outer, (void *)(uintptr_t)inner, size, stride, length, inward, &ram[k].request);
        return;
    }
    pi_cl_dma_dir_e way = inward ? PI_CL_DMA_DIR_EXT2LOC : PI_CL_DMA_DIR_LOC2EXT;
    cl[k].owner = token + 1;
    if (size == length) pi_cl_dma_cmd(outer, inner, size, way, &cl[k].command);
    else pi_cl_dma_cmd_2d(outer, inner, size, stride, length, way, &cl[k].command);
}

void dma_start_2d(int token, uint8_t *to, uint32_t to_stride, const uint8_t *from, uint32_t from_stride,
                  uint32_t row_bytes, uint32_t rows) {
    int inward = transfers[token].inward;
    uint32_t outer = (uint32_t)(inward ? (uintptr_t)from : (uintptr_t)to), outer_stride = inward ? from_stride : to_stride;
    uint32_t inner = (uint32_t)(inward ? (uintptr_t)to : (uintptr_t)from), inner_stride = inward ? to_stride : from_stride;
    uint32_t at_once = inner_stride == row_bytes && row_bytes <= LARGEST ? LARGEST / row_bytes : 1;
    for (uint32_t r = 0; r < rows; r += at_once) {
        uint32_t n = rows - r < at_once ? rows - r : at_once, ahead = outer + r * outer_stride, near = inner + r * inner_stride;
        for (uint32_t done = 0; n == 1 && row_bytes - done > LARGEST; done += LARGEST, ahead += LARGEST, near += LARGEST)
            command(token, ahead, near, LARGEST, LARGEST, LARGEST);
        uint32_t left = n == 1 ? (row_bytes - 1) % LARGEST + 1 : row_bytes;
        command(token, ahead, near, n * left, outer_stride, left);
    }
}

void dma_start_1d(int token, uint8_t *to, const uint8_t *from, uint32_t bytes) {
    dma_start_2d(token, to, bytes, from, bytes, bytes, 1);
}

void dma_commit(int token) { (void)token; }

void dma_wait(int token) { finish(token + 1, 0); }

/* The cores of the cluster, and the outermost level where it is external RAM. */
static struct { void (*work)(void *task, int core, int n_cores); void *task; } shared;

static void enter(void *unused) {
    (void)unused;
    shared.work(shared.task, (int)pi_core_id(), (int)pi_cl_team_nb_cores());
}

void target_fork(void (*work)(void *task, int core, int n_cores), void *task) {
    shared.work = work, shared.task = task;
    pi_cl_team_fork(network_cores, enter, 0);
}

#if N_LEVELS > 2
static int in_ram(const uint8_t *at) {
    return (uintptr_t)at >= (uintptr_t)arenas[0] && (uintptr_t)at < (uintptr_t)arenas[0] + arena_bytes[0];
}

static void move(const uint8_t *outer, void *inner, uint32_t bytes, int inward) {
    if (in_ram(outer)) {
        pi_cl_ram_req_t request;
        pi_cl_ram_copy(network_ram, (uint32_t)(uintptr_t)outer, inner, bytes, inward, &request);
        pi_cl_ram_copy_wait(&request);
    } else if (inward) memcpy(inner, outer, bytes);
    else memcpy((void *)(uintptr_t)outer, inner, bytes);
}

void target_write(uint8_t *to, const void *from, uint32_t bytes) { move(to, (void *)(uintptr_t)from, bytes, 0); }
void target_read(void *to, const uint8_t *from, uint32_t bytes) { move(from, to, bytes, 1); }

void target_clear(uint8_t *to, uint32_t bytes) {
    static const uint8_t zeros[256] = {0};
    for (uint32_t at = 0; at < bytes; at += sizeof zeros)
        target_write(to + at, zeros, bytes - at < sizeof zeros ? bytes - at : sizeof zeros);
}
#endif

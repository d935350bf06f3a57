/* Stand-in for PMSIS, with the prototypes that targets/siracusa uses: copies are done at their wait, so that a missing
 * one shows; the external RAM is an array; a team of three cores takes turns. */
#ifndef PMSIS_H
#define PMSIS_H

#include <stdint.h>

#define PI_L1
#define PI_L2

struct pi_device { int unused; };
typedef enum { PI_CL_DMA_DIR_LOC2EXT = 0, PI_CL_DMA_DIR_EXT2LOC = 1 } pi_cl_dma_dir_e;
typedef struct { uint8_t *outer, *inner; uint32_t size, stride, length; int inward; } pi_cl_dma_cmd_t;
typedef pi_cl_dma_cmd_t pi_cl_ram_req_t;

extern uint8_t stand_in_ram[];
extern int stand_in_core, stand_in_cores;

static inline void stand_in_move(pi_cl_dma_cmd_t *c) {
    for (uint32_t done = 0; done < c->size; done++) {
        uint8_t *outer = c->outer + done / c->length * c->stride + done % c->length;
        if (c->inward) c->inner[done] = *outer;
        else *outer = c->inner[done];
    }
    c->size = 0;
}

static inline void pi_cl_dma_cmd_2d(uint32_t ext, uint32_t loc, uint32_t size, uint32_t stride, uint32_t length,
                                    pi_cl_dma_dir_e dir, pi_cl_dma_cmd_t *cmd) {
    *cmd = (pi_cl_dma_cmd_t){(uint8_t *)ext, (uint8_t *)loc, size, stride, length, dir == PI_CL_DMA_DIR_EXT2LOC};
}

static inline void pi_cl_dma_cmd(uint32_t ext, uint32_t loc, uint32_t size, pi_cl_dma_dir_e dir, pi_cl_dma_cmd_t *cmd) {
    pi_cl_dma_cmd_2d(ext, loc, size, size, size, dir, cmd);
}

static inline void pi_cl_dma_cmd_wait(pi_cl_dma_cmd_t *cmd) { stand_in_move(cmd); }

static inline void pi_cl_ram_copy_2d(struct pi_device *device, uint32_t ram, void *loc, uint32_t size, uint32_t stride,
                                     uint32_t length, int ext2loc, pi_cl_ram_req_t *request) {
    (void)device;
    *request = (pi_cl_ram_req_t){stand_in_ram + ram, loc, size, stride, length, ext2loc};
}

static inline void pi_cl_ram_copy(struct pi_device *device, uint32_t ram, void *loc, uint32_t size, int ext2loc,
                                  pi_cl_ram_req_t *request) {
    pi_cl_ram_copy_2d(device, ram, loc, size, size, size, ext2loc, request);
}

static inline void pi_cl_ram_copy_wait(pi_cl_ram_req_t *request) { stand_in_move(request); }

static inline uint32_t pi_core_id(void) { return (uint32_t)stand_in_core; }
static inline uint32_t pi_cl_team_nb_cores(void) { return (uint32_t)stand_in_cores; }

static inline void pi_cl_team_fork(int n, void (*enter)(void *), void *given) {
    stand_in_cores = n > 0 ? n : 3;
    for (stand_in_core = stand_in_cores - 1; stand_in_core >= 0; stand_in_core--) enter(given);
}

#endif

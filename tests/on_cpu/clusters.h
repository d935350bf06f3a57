// Blocks that run together as a cluster, for kernels with a macro CLUSTER above 1: they see each other's dynamic
// shared memory and have a barrier. Their fibers lie block by block; variables that are declared __shared__ with a
// size would be shared by all blocks, so such kernels have none.
#pragma once
#include "fibers.h"

namespace oncpu {

constexpr State AT_CLUSTER = State(16);

static inline void cluster_barrier() { give_way(AT_CLUSTER); }

// The same place in the shared memory of another block.
template <class T> static inline const T *cluster_peer(const T *own, unsigned rank) {
    size_t offset = (reinterpret_cast<const char *>(own) - current->memory) % current->bytes;
    return reinterpret_cast<const T *>(current->memory + size_t(rank) * current->bytes + offset);
}

// Let threads go on whose partners have all arrived: those of a block, or of the cluster.
static bool free_together(Fiber *first, unsigned n, State state) {
    for (unsigned i = 0; i < n; ++i)
        if (first[i].state != state) return false;
    for (unsigned i = 0; i < n; ++i) first[i].state = READY;
    return true;
}

static Fault run_cluster(Launch &launch, uint3 first) {
    auto &fibers = launch.fibers;
    unsigned total = fibers.size(), n = total / launch.together;
    launch.copies.clear();
    for (unsigned i = 0; i < total; ++i) arm(fibers[i], launch.stacks + i * STRIDE);
    for (;;) {
        bool ran = false;
        for (unsigned r : visits(launch.together, launch.seed)) {
            launch.at = {first.x + r, first.y, first.z};
            launch.shared = launch.memory + size_t(r) * launch.bytes;
            for (unsigned w : launch.warps) ran |= run_warp(launch, r * n + w * WARP, std::min(WARP, n - w * WARP));
        }
        for (unsigned r = 0; r < launch.together; ++r) ran |= free_together(&fibers[r * n], n, AT_BARRIER);
        ran |= free_together(&fibers[0], total, AT_CLUSTER);
        if (ran) continue;
        unsigned done = 0, waiting = 0;
        for (auto &fiber : fibers) done += fiber.state == DONE, waiting += fiber.state == AT_BARRIER || fiber.state == AT_CLUSTER;
        if (done < total) return done + waiting < total ? DIVERGENT_WARP : DIVERGENT_BARRIER;
        return left_behind(launch, total);
    }
}

}  // namespace oncpu

#undef ON_CPU_EXPORT
#define ON_CPU_EXPORT(kernel)                                                                         \
    extern "C" __attribute__((visibility("default"))) int kernel##__launch(                           \
        const unsigned *grid, const unsigned *block, unsigned shared, unsigned order, void **args) { \
        return oncpu::launch({grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, order, \
                             [&] { oncpu::call(kernel, args); }, CLUSTER, oncpu::run_cluster);           \
    }

// Blocks that run together as a cluster, for kernels with a macro CLUSTER above 1: they see each other's dynamic
// shared memory and have a barrier. Their fibers lie block by block; variables that are declared __shared__ with a
// size would be shared by all blocks, so such kernels have none.
#pragma once
#include "fibers.h"

namespace oncpu {

constexpr State AT_CLUSTER = State(16);

struct Cluster {
    unsigned size, n_thread, bytes;
    char *shared;  // of the first block; those of the others follow
};
static thread_local Cluster *cluster = nullptr;

static inline void cluster_barrier() { give_way(AT_CLUSTER); }

// The same place in the shared memory of another block.
template <class T> static inline const T *cluster_peer(const T *own, unsigned rank) {
    size_t offset = (reinterpret_cast<const char *>(own) - cluster->shared) % cluster->bytes;
    return reinterpret_cast<const T *>(cluster->shared + size_t(rank) * cluster->bytes + offset);
}

// Let threads go on whose partners have all arrived: those of a block, or of the cluster.
static bool free_together(Fiber *first, unsigned n, State state) {
    for (unsigned i = 0; i < n; ++i)
        if (first[i].state != state) return false;
    for (unsigned i = 0; i < n; ++i) first[i].state = READY;
    return true;
}

static Fault run_cluster(Launch &launch, const Cluster &c, uint3 first) {
    auto &fibers = launch.fibers;
    unsigned n = c.n_thread, total = n * c.size;
    launch.copies.clear();
    for (unsigned i = 0; i < total; ++i) arm(fibers[i], launch.stacks + i * STACK);
    for (;;) {
        bool ran = false;
        for (unsigned r : visits(c.size, launch.seed)) {
            launch.at = {first.x + r, first.y, first.z};
            launch.shared = c.shared + size_t(r) * c.bytes;
            for (unsigned w : launch.warps) ran |= run_warp(launch, r * n + w * WARP, std::min(WARP, n - w * WARP));
        }
        for (unsigned r = 0; r < c.size; ++r) ran |= free_together(&fibers[r * n], n, AT_BARRIER);
        ran |= free_together(&fibers[0], total, AT_CLUSTER);
        if (ran) continue;
        unsigned done = 0, waiting = 0;
        for (auto &fiber : fibers) done += fiber.state == DONE, waiting += fiber.state == AT_BARRIER || fiber.state == AT_CLUSTER;
        if (done < total) return done + waiting < total ? DIVERGENT_WARP : DIVERGENT_BARRIER;
        return left_behind(launch, total);
    }
}

template <class F> Fault launch_clusters(unsigned size, dim3 grid, dim3 block, unsigned shared, unsigned order, F body) {
    Launch launch;
    launch.grid = grid;
    launch.block = block;
    Cluster c{size, block.x, (shared + 127) / 128 * 128, nullptr};
    if (grid.x % size || block.y != 1 || block.z != 1) std::abort();
    launch.fibers.resize(size * c.n_thread);
    for (unsigned i = 0; i < size * c.n_thread; ++i) {
        launch.fibers[i].linear = i % c.n_thread;
        launch.fibers[i].thread = {i % c.n_thread, 0, 0};
    }
    launch.seed = order;
    launch.poison = order == 1 ? LARGE_POISON : POISON;
    launch.warps = visits((c.n_thread + WARP - 1) / WARP, order);
    launch.lanes = visits(WARP, order);
    char *memory = static_cast<char *>(std::malloc(size_t(size) * c.n_thread * STACK + SLACK));
    launch.stacks = memory + SLACK;
    if (!memory || posix_memalign(reinterpret_cast<void **>(&c.shared), 128, size_t(size) * c.bytes + 1)) std::abort();
    launch.body = [](void *f) { (*static_cast<F *>(f))(); };
    launch.arguments = &body;
    Launch *outer = std::exchange(current, &launch);
    Cluster *around = std::exchange(cluster, &c);
    Fault fault = NONE;
    unsigned across = grid.x / size;
    for (unsigned b : visits(across * grid.y * grid.z, order)) {
        std::memset(c.shared, launch.poison, size_t(size) * c.bytes);
        fault = run_cluster(launch, c, {b % across * size, b / across % grid.y, b / across / grid.y});
        if (launch.fault) fault = launch.fault;
        if (fault) break;
    }
    current = outer;
    cluster = around;
    std::free(c.shared);
    std::free(memory);
    return fault;
}

}  // namespace oncpu

#undef ON_CPU_EXPORT
#define ON_CPU_EXPORT(kernel)                                                                         \
    extern "C" __attribute__((visibility("default"))) int kernel##__launch(                           \
        const unsigned *grid, const unsigned *block, unsigned shared, unsigned order, void **args) { \
        return oncpu::launch_clusters(CLUSTER, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, order, \
                                      [&] { oncpu::call(kernel, args); });                            \
    }

/* Cores that share the work of a tile: each takes consecutive parts of equal number, always the same ones. */
#ifndef TEAM_H
#define TEAM_H

#include <stdint.h>

typedef struct { int32_t core, n_cores; } team_t;
typedef struct { int32_t begin, end; } share_t;

static inline share_t share(team_t team, int32_t n) {
    if (team.n_cores == 1) return (share_t){0, n};
    int32_t each = (n + team.n_cores - 1) / team.n_cores, begin = each * team.core;
    return (share_t){begin < n ? begin : n, begin + each < n ? begin + each : n};
}

#endif

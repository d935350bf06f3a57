"""Golden cases at the sizes and values where kernels take another path than in the others."""

from tests.golden.cases.edges import (
    cells,
    circuits,
    elementwise,
    gemm,
    leaves,
    logprob,
    rounds,
    segments,
    tiled,
    tiles,
)

TOPICS = (cells, circuits, elementwise, gemm, leaves, logprob, rounds, segments, tiled, tiles)

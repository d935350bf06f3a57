"""Golden cases at the sizes and values where kernels take another path than in the others."""

from tests.golden.cases.edges import (
    cells,
    circuits,
    counts,
    elementwise,
    gemm,
    hidden,
    leaves,
    segments,
    ties,
    tiled,
    tiles,
)

TOPICS = (
    cells,
    circuits,
    counts,
    elementwise,
    gemm,
    hidden,
    leaves,
    segments,
    ties,
    tiled,
    tiles,
)

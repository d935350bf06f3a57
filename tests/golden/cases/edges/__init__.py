"""Golden cases at the sizes and values where kernels take another path than in the others."""

from tests.golden.cases.edges import (
    alone,
    cells,
    circuits,
    counts,
    curves,
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
    alone,
    cells,
    circuits,
    counts,
    curves,
    elementwise,
    gemm,
    hidden,
    leaves,
    segments,
    ties,
    tiled,
    tiles,
)

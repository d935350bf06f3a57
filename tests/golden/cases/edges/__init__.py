"""Golden cases at the sizes and values where kernels take another path than in the others."""

from tests.golden.cases.edges import (
    alone,
    analog_nets,
    cells,
    circuits,
    counts,
    curves,
    elementwise,
    gemm,
    hidden,
    leaves,
    products,
    pulses,
    segments,
    ties,
    tiled,
    tiles,
)

TOPICS = (
    alone,
    analog_nets,
    cells,
    circuits,
    counts,
    curves,
    elementwise,
    gemm,
    hidden,
    leaves,
    products,
    pulses,
    segments,
    ties,
    tiled,
    tiles,
)

"""Golden cases at the sizes and values where kernels take another path than in the others."""

from tests.golden.cases.edges import (
    analog_nets,
    cells,
    circuits,
    elementwise,
    gemm,
    leaves,
    products,
    pulses,
    segments,
    tiled,
    tiles,
)

TOPICS = (
    analog_nets,
    cells,
    circuits,
    elementwise,
    gemm,
    leaves,
    products,
    pulses,
    segments,
    tiled,
    tiles,
)

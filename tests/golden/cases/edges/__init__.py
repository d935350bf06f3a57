"""Golden cases at the sizes and values where kernels take another path than in the others."""

from tests.golden.cases.edges import circuits, elementwise, gemm, segments, tiled, tiles

TOPICS = (circuits, elementwise, gemm, segments, tiled, tiles)

"""The cases behind the golden hashes: each computes arrays through the public face of the library.

``tools/record_golden.py`` runs them on a GPU and keeps their sha256 in ``tests/golden/hashes``;
``tests/golden/test_golden.py`` computes them with the mirrors, and the small ones with the ``.cu``
sources on the CPU. Each file of this folder is a topic: ``cases()`` gives its cases, each with the
name of its kernel. Those of ``edges`` are for GPUs, mirrors and `tools/mutate.py`; under g++ they
run where all cases do.
"""

from dataclasses import replace

from tests.golden.cases import (
    circuits,
    devices,
    edges,
    elementwise,
    few_samples,
    float64,
    gemm,
    inference,
    logprob,
    mixed_precision,
    products,
    rules,
    tensor_sums,
    tiled,
    tiles,
)
from tests.golden.cases.case import Case, digest

__all__ = ["CASES", "digest"]

TOPICS = (
    elementwise,
    tiles,
    circuits,
    devices,
    float64,
    inference,
    logprob,
    mixed_precision,
    products,
    rules,
    few_samples,
    tensor_sums,
    tiled,
    gemm,
)
CASES: dict[str, list[Case]] = {}
for _topic in TOPICS:
    for _kernel, _case in _topic.cases():
        CASES.setdefault(_kernel, []).append(_case)
for _topic in edges.TOPICS:
    for _kernel, _case in _topic.cases():
        CASES.setdefault(_kernel, []).append(replace(_case, edge=True))

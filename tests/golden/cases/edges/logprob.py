"""Log-probabilities of whole blocks and of more blocks than a warp, of targets beyond the last."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rpukit import _device
from rpukit.gemm import logprob
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import uniform
from tests.golden.cases.logprob import of_blocks, real

N_ROW, N_BLOCK, N_VOCAB = 9, 70, 37
TARGETS = (0, -1, N_VOCAB, N_VOCAB - 1, N_VOCAB + 1, 3, 36, 1, 2)


def rows(form):
    def run(device):
        kind, where = real(form), _device.parse_device(device)
        peak, mass = (uniform((N_ROW, N_BLOCK), seed).astype(kind) * 3 for seed in (71, 72))
        chosen = uniform((N_ROW,), 73).astype(kind)
        peak[4] = -np.inf
        made = [_device.empty(shape, kind, where) for shape in ((N_ROW, 2), (N_ROW,))]
        given = [put(v, device) for v in (peak, mass, chosen, np.array(TARGETS))]
        logprob.logprob_rows(*given, N_VOCAB, *made)
        return made

    return run


def gradients(form):
    """Of which some are infinite in 16 bits."""

    def run(device):
        kind = real(form)
        z, slope = uniform((N_ROW, N_VOCAB), 74).astype(kind), uniform((N_ROW,), 75).astype(kind)
        slope[3], slope[6] = np.inf, 1e38
        normaliser = np.ones((N_ROW, 2), kind)
        result = np.dtype(np.uint16 if form == "bfloat16" else form)
        out = _device.empty(z.shape, result, _device.parse_device(device))
        given = [put(v, device) for v in (z, normaliser, slope, np.array(TARGETS))]
        logprob.logprob_gradient(*given, 0, out)
        return [out]

    return run


def cases() -> Iterator[tuple[str, Case]]:
    for form in ("float32", "float64"):
        for shape in ((9, 512, 3), (5, 192, 3)):
            yield "logprob_blocks", Case(f"{form}-whole-{shape[1]}", of_blocks(shape, form))
        yield "logprob_rows", Case(f"{form}-beyond", rows(form))
    for form in ("float32", "float16", "bfloat16"):
        yield "logprob_gradient", Case(f"{form}-beyond", gradients(form))

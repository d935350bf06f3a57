"""The cases behind the golden hashes of log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import rpukit as rk
from rpukit import elementwise
from rpukit.gemm import logprob
from tests.golden.cases.case import Case, put

SHAPES = ((1, 1, 1), (5, 127, 33), (70, 4200, 40))


def head(n_row, n_vocab, n_in, form, device, seed=19):
    s = rk.Stream.from_seed(seed)
    shapes = ((n_row, n_in), (n_vocab, n_in))
    made = [elementwise.random_fill(s.child(c), shape) for c, shape in enumerate(shapes)]
    to = rk.gemm.to_bfloat16 if form == "bfloat16" else np.dtype(form).type
    targets = np.arange(n_row) * 7919 % n_vocab - (np.arange(n_row) == 3)
    return [put(x, device) for x in (*map(to, made), targets)]


def of_rows(shape, form):
    def run(device):
        return list(rk.linear_logprob(*head(*shape, form, device), with_normaliser=True))

    return run


def of_blocks(shape, form):
    """Blocks of a slice that begins at block 2 and ends within a block."""

    def run(device):
        hidden, weight, targets = head(*shape, form, device)
        z = rk.det_gemm(hidden, weight, trans_b=True, out_dtype=real(form))
        n_block = 2 - (-z.shape[1] // logprob.BLOCK)
        peak, mass = (put(np.zeros((z.shape[0], n_block), real(form)), device) for _ in range(2))
        chosen = put(np.zeros(z.shape[0], real(form)), device)
        logprob.logprob_blocks(z, targets + 128, 2, peak, mass, chosen)
        return [peak, mass, chosen]

    return run


def gradients(shape, form):
    def run(device):
        hidden, weight, targets = head(*shape, form, device)
        slope = put(np.arange(-2, shape[0] - 2).astype(real(form)) / 7, device)
        return list(rk.linear_logprob_backward(hidden, weight, targets, slope))

    return run


def real(form):
    return np.float64 if form == "float64" else np.float32


def cases() -> Iterator[tuple[str, Case]]:
    for shape in SHAPES:
        for form in ("float32", "float64", "float16", "bfloat16"):
            name = f"{form}-{'x'.join(map(str, shape))}"
            yield "logprob_blocks", Case(name, of_blocks(shape, form), small=shape[0] < 70)
            yield "logprob_rows", Case(name, of_rows(shape, form), small=shape[0] < 70)
            yield "logprob_gradient", Case(name, gradients(shape, form), small=shape[0] < 70)

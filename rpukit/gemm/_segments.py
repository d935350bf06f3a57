"""Sums of several segments where a launch computes one: by single warps, and by the mirror."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.replay import keep_for_graph
from rpukit._workers import run_rows, work_grain
from rpukit.gemm.lines import Factor

Array = Any

_STEP, _FRACTION = 16, 25  # of the tensor core that the mirror models
_NOTHING = np.empty((0, 0), np.float32)


def by_segments(
    run: Callable[..., None],
    p: Factor,
    q: Factor,
    out: Array,
    part: tuple[int, int],
    segment: int,
) -> None:
    """Multiply segment by segment, and add each result to the sum of those before.

    ``run``: called with p, q, the result, the part, no initial values and the sum so far;
    ``segment``: its terms.
    """
    edges = [*range(*part, segment), part[1]]
    room = _device.empty(out.shape, np.float32, _device.device_of(out))  # lines as long as out's
    keep_for_graph(room)
    total = None
    for start, stop in pairwise(edges):
        target = out if stop == part[1] else room
        run(p, q, target, (start, stop), None, total)
        total = target


def run_mirror(
    name: str,
    p: Factor,
    q: Factor,
    out: np.ndarray,
    part: tuple[int, int],
    partial: np.ndarray | None,
    total: np.ndarray | None,
    segment: int,
) -> None:
    """Implement `tensor.multiply` by the mirror of kernel ``name``."""
    if part[1] - part[0] > segment:
        run = functools.partial(run_mirror, name, segment=segment)
        by_segments(run, p, q, out, part, segment)
        return
    mirror = import_module("rpukit.gemm._mirror.tensor")
    a, b = p.upright(*part), np.ascontiguousarray(q.upright(*part).T)
    factor_of = import_module("rpukit._exact.tensor_core").factor_of
    (sa, ea, rows), (sb, eb, columns) = (factor_of(words, p.half) for words in (a, b))
    run_rows(
        getattr(mirror, name),
        p.lines,
        p.half,
        _STEP,
        _FRACTION,
        partial is not None,
        total is not None,
        a,
        sa,
        ea,
        b,
        sb,
        eb,
        rows.any(1),
        columns.any(0),
        _NOTHING if partial is None else partial,
        _NOTHING if total is None else total,
        out,
        grain=work_grain(8 * max(b.size, 1)),
    )

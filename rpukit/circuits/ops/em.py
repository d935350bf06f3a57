"""Ops of EM steps: new weights from expected counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import mirror, real
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.compiled.tables import Uses

__all__ = ["count_samples", "sum_maximise"]

Array = Any
_LEARNING = "rpukit.circuits._mirror.learning"

_COUNT_SAMPLES = Kernel("count_samples")
_SUM_MAXIMISE = Kernel("sum_maximise")


def count_samples(held: Any, out: Array, weights: Array) -> None:
    """Count samples, and add the root flows of those that are possible by ``out``."""
    args = (out, weights, held.clock, held.weighed)
    if _device.takes_kernels(out):
        macros = {"REAL": real(out.dtype)}
        _COUNT_SAMPLES.launch((1,), (256,), (*out.shape, *args), macros=macros)
        return
    run_rows(mirror(_LEARNING, out.dtype).count_samples, 1, *args)


def sum_maximise(
    uses: Uses,
    step: float,
    pseudocount: float,
    keep_zeros: bool,
    chains: Array,
    totals: Array,
    theta: Array,
) -> None:
    """EM step of all weights, in place."""
    numbers = (np.float64(step), np.float64(pseudocount), keep_zeros)
    arrays = (chains, totals, theta)
    if _device.takes_kernels(theta):
        if not uses.theta:
            return
        blocks = (uses.block_theta, uses.block_first, uses.size, uses.count)
        tiles, macros = (uses.column_block, uses.column_node), {"REAL": real(theta.dtype)}
        args = (*numbers, *blocks, *tiles, *arrays)
        _SUM_MAXIMISE.launch((len(uses.column_block),), (256,), args, macros=macros)
        return
    go = mirror(_LEARNING, theta.dtype).sum_maximise
    for first, n_child, n_node in uses.theta:
        own = (array[first : first + n_child * n_node] for array in arrays)
        run_rows(go, n_node, n_child, *numbers, *own, grain=work_grain(n_child))

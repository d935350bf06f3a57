"""Log-probabilities of a head whose weight is split over devices: `ShardedLinear.logprob`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.lanes import Lanes
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError
from rpukit.gemm.logprob import (
    BLOCK,
    block_sums,
    logprob_blocks,
    logprob_gradient,
    logprob_rows,
    of_rows,
    row_ranges,
    slices,
    type_of_logits,
)
from rpukit.gemm.ops import det_gemm
from rpukit.gemm.split.pieces import on

Array = Any
Logits = Callable[[slice, slice], Array]

_PADDING = BLOCK  # columns beside a gradient, where targets on other devices point to


def checked(targets: Array, n_row: int, n_vocab: int, home: _device.Device) -> Array:
    """Check the targets; return them as int64."""
    if not (isinstance(targets, np.ndarray) or _device.is_cupy(targets)):
        raise DTypeError(f"targets: got {type(targets).__name__}, need a NumPy or CuPy array")
    if _device.device_of(targets) != home:
        here = _device.device_of(targets)
        raise DeviceError(f"targets are on {here}, need {home}: move them first")
    if targets.dtype not in (np.int32, np.int64):
        raise DTypeError(f"targets: got {targets.dtype}, need int32 or int64; use .astype")
    if targets.shape != (n_row,):
        raise ShapeError(f"targets: got shape {tuple(targets.shape)}, need ({n_row},)")
    looks = not _device.takes_kernels(targets)  # as `linear_logprob`
    if looks and targets.size and targets.max() >= n_vocab:
        raise ParameterError(f"targets: got {targets.max()}, need at most {n_vocab - 1}")
    with _device.using(home):
        return targets.astype(np.int64)


def numbers_of_rows(
    n_row: int, dlogprob: Array, normaliser: Array | None, dtype: Any, home: _device.Device
) -> tuple[Array, Array | None]:
    """Check what is given for each row."""
    real = type_of_logits(dtype)
    slope = of_rows("dlogprob", dlogprob, (n_row,), real, home)
    if normaliser is not None:
        normaliser = of_rows("normaliser", normaliser, (n_row, 2), real, home)
    return slope, normaliser


def by_vocabulary(
    heads: Sequence[Logits],
    edges: Sequence[int],
    devices: Sequence[_device.Device],
    targets: Array,
    dtype: Any,
    home: _device.Device,
) -> tuple[Array, Array]:
    """Log-probabilities and normalisers: each device reduces the blocks of its vocabulary."""
    real, n_row, n_vocab = type_of_logits(dtype), len(targets), edges[-1]
    logprob, normaliser = (_device.empty(s, real, home) for s in ((n_row,), (n_row, 2)))
    goals = [on(targets, device) for device in devices]  # before any device has work
    for rows in row_ranges(n_row):
        n, lanes = rows.stop - rows.start, Lanes()
        made, work = [], []
        for logits, (first, stop), goal in zip(heads, pairwise(edges), goals, strict=True):
            device, shape = _device.device_of(goal), (n, -(-(stop - first) // BLOCK))
            sums = tuple(_device.empty(s, real, device) for s in (shape, shape, (n,)))
            with _device.using(device):
                own = goal[rows] - first
            work.append((device, _sum_blocks(logits, rows, stop - first, own, sums)))
            made.append(sums)
        _in_turns(work)
        sent = [
            [(v, None) if device == home else lanes.send(v, home) for v in sums]
            for device, sums in zip(devices, made, strict=True)
        ]
        with _device.using(home):
            peak, mass = (_device.empty((n, -(-n_vocab // BLOCK)), real, home) for _ in range(2))
            chosen = _device.zeros((n,), real, home)
            for (first, stop), of_device in zip(pairwise(edges), sent, strict=True):
                for _, copied in of_device:
                    lanes.wait(home, copied)
                (tops, _), (masses, _), (own, _) = of_device
                blocks = slice(first // BLOCK, -(-stop // BLOCK))
                peak[:, blocks], mass[:, blocks] = tops, masses
                here = (targets[rows] >= first) & (targets[rows] < stop)
                chosen = _device.namespace(peak).where(here, own, chosen)
            given = (peak, mass, chosen, targets[rows])
            logprob_rows(*given, n_vocab, normaliser[rows], logprob[rows])
        lanes.finish()
    return logprob, normaliser


def _sum_blocks(
    logits: Logits, rows: slice, n_vocab: int, targets: Array, sums: Sequence[Array]
) -> Iterator[None]:
    """Reduce logits as `block_sums` does, into arrays that are given; yield after each slice."""
    peak, mass, chosen = sums
    n, real = rows.stop - rows.start, peak.dtype
    for columns in slices(n, n_vocab, real, _device.device_of(peak)):
        z = logits(rows, columns)
        logprob_blocks(z, targets, columns.start // BLOCK, peak, mass, chosen)
        yield


def _in_turns(work: Sequence[tuple[_device.Device, Iterator[None]]]) -> None:
    """Give each device a step at a time, so that none waits for the host's calls of another."""
    waiting = list(work)
    while waiting:
        waiting = [each for each in waiting if _step(*each)]


def _step(device: _device.Device, steps: Iterator[None]) -> bool:
    with _device.using(device):
        return next(steps, True) is None


def by_logits(
    logits: Logits, targets: Array, n_vocab: int, dtype: Any, home: _device.Device
) -> tuple[Array, Array]:
    """Log-probabilities and normalisers, from slices of the logits on one device."""
    real, n_row = type_of_logits(dtype), len(targets)
    logprob, normaliser = (_device.empty(s, real, home) for s in ((n_row,), (n_row, 2)))
    with _device.using(home):
        for rows in row_ranges(n_row):
            sums = block_sums(logits, rows, n_vocab, targets[rows], real, home)
            logprob_rows(*sums, targets[rows], n_vocab, normaliser[rows], logprob[rows])
    return logprob, normaliser


def gradients_by_vocabulary(
    heads: Sequence[Logits],
    edges: Sequence[int],
    devices: Sequence[_device.Device],
    targets: Array,
    slope: Array,
    normaliser: Array,
    dtype: Any,
) -> list[Array]:
    """Gradient by the logits: each device those of its vocabulary."""
    made, n_vocab = [], edges[-1]
    # Copied before any device has work, for which a copy would wait.
    given = [[on(v, device) for v in (targets, slope, normaliser)] for device in devices]
    work = []
    for logits, (first, stop), device, (goal, steep, known) in zip(
        heads, pairwise(edges), devices, given, strict=True
    ):
        with _device.using(device):
            xp, n, wide = _device.namespace(goal), stop - first, stop - first + _PADDING
            # Elsewhere in the vocabulary: a column that is not computed. Beyond it: NaN, as ever.
            own = xp.where((goal >= first) & (goal < stop), goal - first, n)
            own = xp.where(goal < 0, goal, xp.where(goal >= n_vocab, wide, own))
        dz = _device.empty((len(targets), wide), dtype, device)
        work.append((device, _gradient(logits, own, steep, known, n, dz)))
        made.append(dz[:, :n])
    _in_turns(work)
    return made


def heads_of(pieces: Sequence[Array], weights: Sequence[Array], dtype: Any) -> list[Logits]:
    """Return a function for each device, which gives slices of the logits of its vocabulary."""
    return [_logits_of(*own, dtype) for own in zip(pieces, weights, strict=True)]


def gradient_of_logits(
    logits: Logits,
    home: _device.Device,
    targets: Array,
    slope: Array,
    normaliser: Array,
    n_vocab: int,
    dtype: Any,
) -> Array:
    """Gradient by the logits (n_row, n_vocab), from slices of them on one device."""
    dz = _device.empty((len(targets), n_vocab), dtype, home)
    _in_turns([(home, _gradient(logits, targets, slope, normaliser, n_vocab, dz))])
    return dz


def _gradient(
    logits: Logits,
    targets: Array,
    slope: Array,
    normaliser: Array,
    n_column: int,
    dz: Array,
) -> Iterator[None]:
    """Write the gradient by the logits to columns of ``dz``; yield after each slice."""
    real, device = type_of_logits(dz.dtype), _device.device_of(dz)
    for rows in row_ranges(len(targets)):
        for columns in slices(rows.stop - rows.start, n_column, real, device):
            z = logits(rows, columns)
            given = (normaliser[rows], slope[rows], targets[rows])
            logprob_gradient(z, *given, columns.start, dz[rows])
            yield


def _logits_of(hidden: Array, weight: Array, real: Any) -> Logits:
    def logits(rows: slice, columns: slice) -> Array:
        return det_gemm(hidden[rows], weight[columns], trans_b=True, out_dtype=real)

    return logits

"""The stages of a product one by one, for tiles whose sums are made elsewhere.

A product is scales, then rounds of converted inputs, sums and outputs. `tile_forward` makes all
of it on one device. Here the caller makes the sums, and both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._workers import run_rows, work_grain
from rpukit.analog.product.launch import (
    BY_ROUND,
    COUNTERS,
    Call,
    Plan,
    Step,
    inputs_step,
    outputs_step,
    run,
    scale_step,
)
from rpukit.analog.product.ops import _mirror, tile_scale

Array = Any
Sums = Callable[[Array], Array]


def by_stages(call: Call, reductions: np.ndarray, sums: Sums) -> Array:
    """Multiply a batch, whose sums are made by a function.

    Parameters
    ----------
    call : Call
        Without read noise; its weight is not used.
    reductions : array, shape (n_round,), float32
        See `ForwardState`.
    sums : callable
        Given converted inputs (n_row, n_in), it returns their sums (n_row, n_out): float32, on the
        device of the inputs.

    Returns
    -------
    array, shape (n_batch, n_out), float32
        ``call.y``.
    """
    if _device.takes_kernels(call.x):
        _on_kernels(call, sums)
    elif call.manner.perfect:
        np.multiply(sums(call.x), call.io[8], out=call.y)
    else:
        _on_mirrors(call, reductions, sums)
    return call.y


def _on_mirrors(call: Call, reductions: np.ndarray, sums: Sums) -> None:
    mirror, manner, io = _mirror(), call.manner, call.io
    (n_batch, n_out, n_in), stream = call.shape, call.stream
    scales = tile_scale(call)
    deviation = np.empty(0, np.float32) if call.line_noise is None else call.line_noise
    samples, read = np.arange(n_batch), np.empty((n_batch, 1), np.float32)
    for number, rho in enumerate(reductions):
        of_round = scales[1 if manner.worst and number else 0]
        v, failed = np.empty((samples.size, n_in), np.float32), np.empty(samples.size, np.bool_)
        at = (call.first_sample, number, rho, of_round)
        inputs = (samples, io, manner.ops[0], *at, call.x, v, *stream.words)
        run_rows(mirror.tile_inputs, samples.size, *inputs, grain=work_grain(8 * n_in))
        made = np.ascontiguousarray(sums(v))
        words = np.empty((3, n_out), np.uint32)
        given = (samples, 0, io, manner.ops[1], *at, read, deviation, made, call.y, failed)
        mirror.tile_outputs(0, samples.size, *given, *stream.words, words)
        samples = samples[failed]
        if not samples.size:
            break


def _on_kernels(call: Call, sums: Sums) -> None:
    manner, (n_batch, n_out, n_in) = call.manner, call.shape
    head = -(-(COUNTERS * n_batch + 1) // 4) * 4
    size = head + (0 if manner.perfect else n_batch * n_in)
    work = _device.empty((size,), np.float32, _device.device_of(call.x))
    convert = {"CONVERT": int(not manner.perfect), "VEC": 1}
    _run(call, work, head, scale_step(manner, n_batch, n_in, head, convert))
    if manner.perfect:
        call.y[...] = sums(call.x) * call.io[8]
        return
    v = work[head:].reshape(n_batch, n_in)
    made = sums(v)
    for number, rows in _rounds(call, work):
        if number:
            _run(call, work, head, inputs_step(manner, n_batch, n_in, head, number))
            made[rows] = sums(v[rows])
        numbers = (n_batch, n_out, head, number, manner.n_round, 0)
        _run(call, work, head, outputs_step(manner, numbers), made)


def _rounds(call: Call, work: Array) -> Iterator[tuple[int, Array | None]]:
    """Yield the rounds that samples wait for, and these samples; asking for them synchronises."""
    n_batch, xp = call.shape[0], _device.namespace(work)
    need = work.view(np.int32)[2 * n_batch : 3 * n_batch]
    yield 0, None
    for number in range(1, call.manner.n_round):
        rows = xp.flatnonzero(need >= BY_ROUND + number)
        if not rows.size:
            return
        yield number, rows


def _run(call: Call, work: Array, head: int, step: Step, made: Array | None = None) -> None:
    run(call, Plan(work.size, head, (step,)), work, made)

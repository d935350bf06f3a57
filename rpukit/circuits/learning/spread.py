"""Counts of samples: on one device in one pass after the other, or on several GPUs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from rpukit import _device
from rpukit._kernels.calls import heed
from rpukit.circuits.core import Core
from rpukit.circuits.learning.blocks import add_blocks, block_step, counted
from rpukit.circuits.memory import PASS
from rpukit.circuits.partials import BLOCK
from rpukit.circuits.peers import Peers, has_numbers
from rpukit.circuits.queries.passes import (
    Propagation,
    as_type,
    both_ways,
    gather,
    propagation_of,
)
from rpukit.circuits.queries.propagation import Rule

__all__ = ["add_pass", "count", "count_apart"]

Array = Any
Part = tuple[slice, Array, Any]


def count(core: Core, propagation: Propagation, x: Any, missing: Any, weights: Any) -> Array:
    """Add the flows of samples to the statistics; give the log-likelihoods (n, n_root)."""
    step = min(PASS, core.memory.samples(learns=True))
    n, read = core.encoder.parts(x, missing, step)
    weights = core.encoder.weights(weights, n)
    out = _device.empty(weights.shape, core.dtype, core.device)
    empty = core.statistics.n_sample == 0
    core.call_state.changing()
    for part, *evidence in read:
        add_pass(core, propagation, evidence, weights[part], out[part])
        if empty:
            heed()
    return out


def count_apart(
    core: Core, propagation: Propagation, rule: Rule | None, x: Any, missing: Any, weights: Any
) -> Array:
    """`count` by several GPUs, each with blocks of its own; those are added in ascending order."""
    peers: Peers = core.peers
    peers.update()
    n, read = core.encoder.parts(x, missing, len(peers.devices) * peers.n_block * BLOCK)
    flows = None if weights is None else core.encoder.weights(weights, n)
    ones = core.encoder.weights(None, n) if flows is None else flows
    out = _device.empty(ones.shape, core.dtype, core.device)
    empty = core.statistics.n_sample == 0
    core.call_state.changing()
    for part, codes, numbers in read:
        shares = peers.blocks(core.statistics.n_sample, len(codes))
        jobs = [
            _job(peers, k, rule, codes[share], numbers[share], _rows(_rows(flows, part), share))
            for k, share in enumerate(shares[1:])
        ]
        own, there = shares[0], part.start
        here = slice(there, there + own.stop)
        arrays = (codes[own], numbers[own], ones[here], out[here])
        found = peers.run(partial(_add_passes, core, propagation, *arrays), jobs)
        for share, made in zip(shares[1:], found[1:], strict=True):
            if made is None:
                continue
            chains, leaf_chains, some = peers.taken(*made)
            at = slice(there + share.start, there + share.stop)
            out[at] = some
            exponent = float(propagation.exponent)
            add_blocks(core, chains, leaf_chains, some, ones[at], exponent)
        if empty:
            heed()
    return out


def _job(
    peers: Peers, k: int, rule: Rule | None, codes: Array, numbers: Array, flows: Array | None
) -> Callable[[], Any] | None:
    """Send samples to a GPU; give what its thread is to do with them."""
    if not len(codes):
        return None
    core = peers.cores[k]
    numbers = numbers if has_numbers(core) else None
    n, (there, figures, weights) = len(codes), peers.sent(core, codes, numbers, flows)

    def call() -> Any:
        propagation = propagation_of(core.parameters, rule)
        return counted(core, propagation, n, _parts(core, there, figures), weights)

    return call


def _parts(core: Core, codes: Array, numbers: Array | None) -> Iterator[Part]:
    """Cut samples on a GPU into the passes of `counted`; without numbers all are missing."""
    step = block_step(core)
    for first in range(0, len(codes), step):
        part = slice(first, min(first + step, len(codes)))
        yield part, codes[part], None if numbers is None else numbers[part]


def _rows(array: Array | None, part: slice) -> Array | None:
    return None if array is None else array[part]


def _add_passes(
    core: Core,
    propagation: Propagation,
    codes: Array,
    numbers: Array,
    weights: Array,
    out: Array,
) -> None:
    step = min(PASS, core.memory.samples(learns=True))
    for first in range(0, len(codes), step):
        part = slice(first, first + step)
        evidence = (codes[part], numbers[part])
        add_pass(core, propagation, evidence, weights[part], out[part])


def add_pass(
    core: Core, propagation: Propagation, evidence: Sequence[Array], weights: Array, out: Array
) -> None:
    """Add the flows of one pass to the statistics; ``out`` gets the log-likelihoods."""
    parameters, statistics, n = core.parameters, core.statistics, len(out)
    n_sample, usual = statistics.n_sample, propagation.usual

    def call() -> None:
        run = both_ways(core, propagation, evidence, weights, out if usual else None)
        gather(parameters, run, statistics)
        if not usual:
            found = propagation.outputs(run.values.take(parameters.root_rows, axis=1))
            out[:] = as_type(found, out.dtype)

    with core.memory.opened(n, learns=True):
        if usual:
            core.memory.replayed(("gather", n), (*evidence, weights, out), {}, call)
        else:
            call()
    statistics.n_sample = n_sample + n

"""Counts of samples: on one device in one pass after the other, or on several GPUs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rpukit import _device
from rpukit._kernels.calls import heed
from rpukit.circuits.core import Core
from rpukit.circuits.learning.blocks import add_rows, block_step, counted
from rpukit.circuits.memory import PASS
from rpukit.circuits.ops import em as steps
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

__all__ = ["add_pass", "begin_totals", "count", "count_apart", "count_round"]

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
        arrays = (codes, numbers, _rows(flows, part), ones[part], out[part])
        count_round(peers, core, propagation, rule, *arrays)
        if empty:
            heed()
    return out


def count_round(
    peers: Peers,
    core: Core,
    propagation: Propagation,
    rule: Rule | None,
    codes: Array,
    numbers: Array,
    flows: Array | None,
    ones: Array,
    out: Array,
) -> None:
    """Count samples by all GPUs at once; the totals go from GPU to GPU, in the samples' order.

    The first GPU of the others adds to the totals as it goes. Those after it, and the circuit's
    own at the end, compute rows of their blocks meanwhile, and add them when the totals arrive.
    """
    statistics, n = core.statistics, len(codes)
    head, *shares = peers.blocks(statistics.n_sample, n)
    at_once, last = head.stop == 0, shares[-1]
    jobs = []
    for k, share in enumerate(shares[:-1]):
        mine = (codes[share], numbers[share], _rows(flows, share))
        jobs.append(_job(peers, k, rule, *mine, at_once=at_once and k == 0))
    used = sum(job is not None for job in jobs)
    begun, free = statistics.n_sample, peers.event(core) if at_once else None
    if used and at_once:
        begin_totals(peers, core, peers.cores[0])

    def own() -> Any:
        if head.stop:
            _add_passes(core, propagation, codes[head], numbers[head], ones[head], out[head])
        arrays = (codes[last], numbers[last])
        if not used:
            return _add_passes(core, propagation, *arrays, ones[last], out[last])
        given = (last.stop - last.start, _parts(core, *arrays), _rows(flows, last))
        return counted(core, propagation, *given)

    found = peers.run(own, jobs)
    if not used:
        return
    before = core
    for there, made in zip(peers.cores[:used], found[1 : used + 1], strict=True):
        if len(made) > 1:  # rows that wait for the totals
            peers.hand_on(before, there)
            chains, leaf_chains, some = made
            with _device.using(there.device):
                add_rows(there.statistics, chains, leaf_chains, len(some), there.pieces)
        before = there
    peers.hand_on(before, core, free)
    for share, made in zip(shares[:used], found[1 : used + 1], strict=True):
        (out[share],) = peers.taken(made[-1])
    chains, leaf_chains, out[last] = found[0]  # it has a block wherever another GPU has one
    add_rows(statistics, chains, leaf_chains, last.stop - last.start, core.pieces)
    steps.count_samples(statistics, out[head.stop :], ones[head.stop :])
    statistics.n_sample = begun + n


def begin_totals(peers: Peers, core: Core, there: Core) -> None:
    """Give a GPU the totals so far, to which it adds while it counts."""
    held = core.statistics
    with _device.using(there.device):
        there.statistics.clear()
        there.statistics.resume(held.n_sample, 0.0)
    if held.n_sample:
        peers.hand_on(core, there)


def _job(
    peers: Peers,
    k: int,
    rule: Rule | None,
    codes: Array,
    numbers: Array,
    flows: Array | None,
    *,
    at_once: bool,
) -> Callable[[], Any] | None:
    """Copy samples to a GPU; return the work for its thread.

    The work adds them to the statistics (`at_once`), or makes the rows of their blocks first. It
    returns log-likelihoods.
    """
    if not len(codes):
        return None
    core = peers.cores[k]
    numbers = numbers if has_numbers(core) else None
    n, (there, figures, weights) = len(codes), peers.sent(core, codes, numbers, flows)

    def call() -> Any:
        propagation = propagation_of(core.parameters, rule)
        if not at_once:
            return counted(core, propagation, n, _parts(core, there, figures), weights)
        known = core.encoder.weights(None, n) if weights is None else weights
        found = _device.empty(known.shape, core.dtype, core.device)
        values = core.unknown(n)[1] if figures is None else figures
        _add_passes(core, propagation, there, values, known, found)
        return (found,)

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

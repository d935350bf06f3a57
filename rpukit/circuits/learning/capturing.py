"""Steps of learning as CUDA graphs, on one GPU or a few graphs for each of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels.entering import enters_device
from rpukit._kernels.lanes import Lanes
from rpukit.circuits.core import CircuitLike, Core
from rpukit.circuits.learning.cuda_graph import Captured, EMStep, Graph
from rpukit.circuits.learning.em import maximise_part, take_em_step
from rpukit.circuits.learning.owners import Part, cut
from rpukit.circuits.learning.shares import Counts, RowShare, Share
from rpukit.circuits.learning.spread import begin_totals, count_round
from rpukit.circuits.ops import em as steps
from rpukit.circuits.parameters import Statistics
from rpukit.circuits.partials import BLOCK
from rpukit.circuits.peers import Peers
from rpukit.circuits.queries.passes import Propagation

__all__ = ["CapturedApart", "captured"]

Array = Any
Events = Mapping[Device, Any]


def captured(
    self: CircuitLike,
    batch_size: int,
    *,
    step: float | None = None,
    pseudocount: float = 0.0,
    keep_zeros: bool = False,
) -> Captured:
    """Capture `accumulate`, or `em_step`, for one size of batch as a CUDA graph.

    Parameters
    ----------
    batch_size : int
    step : float, in (0, 1], optional
        Take a step of EM after each batch, as `em_step` does. Default: only gather.
    pseudocount, keep_zeros : optional
        Of the step of EM.

    Returns
    -------
    Captured
        Call it as `accumulate`: the bits are the same, and a call costs one launch a GPU, beside
        the checks of the data. It holds the arrays of a pass of its own. A circuit on several GPUs
        gives each one its share, if the samples are more than 256.

    Raises
    ------
    DeviceError
        If the circuit is on the CPU.
    ParameterError
    PlanError
        If such a pass does not fit the circuit's budget.

    Examples
    --------
    >>> import rpukit as rk
    >>> pc = rk.Circuit(rk.circuits.hmm(5, 3, 4), device="gpu")  # doctest: +SKIP
    >>> with pc.captured(64) as step:  # doctest: +SKIP
    ...     log_likelihood = step(x)
    """
    after = None if step is None else EMStep(step, pseudocount, keep_zeros)
    peers = self._core.peers
    kind = Captured if peers is None else CapturedApart
    return kind(self._core, batch_size, after)


class _Owner:
    """A GPU that adds the counts of a part of the parameters and, in a step of EM, changes it.

    Parameters
    ----------
    core : Core
        Of that GPU.
    part : Part
    shares : sequence of Share
        In the order of their samples.
    em : EMStep, optional
    after : callable
        Called with the statistics when all rows are added.
    """

    def __init__(
        self,
        core: Core,
        part: Part,
        shares: Sequence[Share],
        em: EMStep | None,
        after: Callable[[Statistics], None],
    ) -> None:
        self.core, self.part, self._first = core, part, shares[0].core
        self._inbox: list[tuple[Device, int, Counts, Counts]] = []
        self._rows: list[Counts] = []
        for share in shares:
            if not isinstance(share, RowShare):
                continue
            if share.core is core:
                self._rows.append(share.counts(part))
                continue
            for k, sent in enumerate(share.sent_of(part)):
                with _device.using(core.device):
                    room = Counts.room(sent, core.dtype, core.device)
                self._inbox.append((share.core.device, k, sent, room))
                self._rows.append(room)
        with _device.using(core.device):
            empty, uses = core.statistics.fresh(), part.uses(core.parameters)

        def add(held: Statistics, pseudocount: float) -> None:
            for rows in self._rows:
                rows.add(held, part)
            after(held)
            if em is None:
                return
            if held is empty:  # without counts the step changes nothing
                held.clear()
            numbers = (em.step, pseudocount, em.keep_zeros)
            maximise_part(core.parameters, held, *numbers, uses, part.runs)

        added = 0.0 if em is None else em.pseudocount
        self.graph = Graph(
            core.device, lambda: add(empty, 0.0), lambda: add(core.statistics, added)
        )

    def collect(self, lanes: Lanes, free: Events, counted: Events) -> None:
        """Take the totals and rows of other GPUs.

        They are there after the events ``counted``, of each GPU one for each block of its rows;
        their places are not used after ``free``.
        """
        own = free[self.core.device]
        if self._first is not self.core:
            held, its = self.core.statistics, self._first.statistics
            totals = zip(
                self.part.of(its.totals, its.leaf_totals),
                self.part.of(held.totals, held.leaf_totals),
                strict=True,
            )
            for source, target in totals:
                if source.size:
                    lanes.put(source, target, own, counted[self._first.device][-1])
        for device, k, sent, room in self._inbox:
            sent.send(room, lanes, own, counted[device][k])

    def give(self, lanes: Lanes, cores: Sequence[Core], passed: Events) -> None:
        """Copy the parameters to the other GPUs, after the events of all."""
        own = self.part.parameters(self.core.parameters)
        for there in cores:
            if there is self.core:
                continue
            for source, target in zip(own, self.part.parameters(there.parameters), strict=True):
                lanes.put(source, target, passed[self.core.device], passed[there.device])


@enters_device("__call__")
class CapturedApart(Captured):
    """`Captured` of a circuit on several GPUs: each counts its share of the samples.

    With a step of EM each GPU that has samples owns a part of the parameters: it adds the counts
    of this part, changes it and gives it to the others. The order of additions is that of
    `count_round`, and so are the bits. A call while a block is open does without graphs.
    """

    def _check_memory(self) -> None:
        peers: Peers = self._core.peers
        for core, part in zip(
            (*peers.cores, self._core), peers.blocks(0, self._n)[1:], strict=True
        ):
            core.memory.check(part.stop - part.start)

    def _captured(self) -> tuple[Graph, Array]:
        core, peers, em = self._core, self._core.peers, self._em
        held = core.statistics
        n_sample, exponent = held.n_sample, held.exponent
        _, *spans, last = peers.blocks(0, self._n)
        self._spans = [span for span in spans if span.start < span.stop]
        there = peers.cores[: len(self._spans)]
        owners = [core] if em is None else [*there, core]
        parts = cut(core.parameters, len(owners))
        out = _device.empty(self._weights.shape, core.dtype, core.device)

        def elsewhere(of: Core) -> list[Part]:
            return [part for part, owner in zip(parts, owners, strict=True) if owner is not of]

        self._lanes = Lanes()
        self._others: list[Share] = []
        for k, (one, span) in enumerate(zip(there, self._spans, strict=True)):
            samples, likely = _room(one, span.stop - span.start)
            share = RowShare(one, samples, likely, elsewhere(one)) if k else None
            self._others.append(share or Share(one, samples, likely))
        self._last = last
        samples, _ = _room(core, last.stop - last.start)
        self._own = RowShare(core, samples, out[last], elsewhere(core))
        shares = [*self._others, self._own]

        def counted(held: Statistics) -> None:
            if em is None:  # else they are cleared
                steps.count_samples(held, out, self._weights)

        self._owners = [
            _Owner(one, part, shares, em, counted) for one, part in zip(owners, parts, strict=True)
        ]
        self._settled = [] if em is None else [_settled(one) for one in (*peers.cores, core)]
        held.n_sample, held.exponent = n_sample, exponent
        for one in peers.cores:  # counts of the first launches, by whatever number of samples
            with _device.using(one.device):
                one.statistics.clear()
        return self._owners[-1].graph, out

    def _graphs(self) -> list[Any]:
        shares = (*self._others, self._own)
        owners = (owner.graph for owner in self._owners)
        return [] if self._graph is None else [*shares, *owners, *self._settled]

    def _launch(self, graph: Graph) -> None:
        core, peers = self._core, self._core.peers
        peers.update()
        if core.statistics.n_sample % BLOCK:
            self._without_graphs()
            return
        for other in self._others[:1]:
            held = other.core.statistics
            if core.statistics.n_sample or held.n_sample:
                begin_totals(peers, core, other.core)
            held.n_sample = self._n  # until they are cleared
        every, lanes = (*peers.cores, core), self._lanes
        samples = (self._codes, self._numbers, self._weights)
        self._own.keep(*(array[self._last] for array in samples))
        free = {one.device: peers.event(one) for one in every}
        counted = {core.device: self._own.launch()}  # the longest one
        for other, span in zip(self._others, self._spans, strict=True):
            own = [array[span] for array in samples]
            other.take(own, lanes, free[core.device], free[other.core.device])
            counted[other.core.device] = other.launch()
        for owner in self._owners:
            owner.collect(lanes, free, counted)
        for other, span in zip(self._others, self._spans, strict=True):
            made = counted[other.core.device][-1]
            lanes.put(other.out, self._out[span], free[core.device], made)
        for owner in self._owners[:-1]:
            owner.graph.launch()
        graph.launch()  # that of the last owner
        self._count()
        if self._em is not None:
            passed = {one.device: peers.event(one) for one in every}
            for owner in self._owners:
                owner.give(lanes, every, passed)
        lanes.finish()
        if self._em is None:
            return
        for settled in self._settled:
            settled.launch()
        for other in self._others[:1]:
            other.core.statistics.n_sample = 0
        peers.updated()

    def _without_graphs(self) -> None:
        core, em = self._core, self._em
        propagation, ones = Propagation(core.parameters), self._weights
        samples = (self._codes, self._numbers, ones, ones, self._out)
        count_round(core.peers, core, propagation, None, *samples)
        if em is not None:
            take_em_step(core, em.step, em.pseudocount, em.keep_zeros)


def _room(core: Core, n: int) -> tuple[tuple[Array, Array, Array], Array]:
    """Allocate n samples and their log-likelihoods on a GPU beside the circuit's own."""
    with _device.using(core.device):
        samples = (*core.unknown(n), core.encoder.weights(None, n))
        return samples, _device.empty(samples[2].shape, core.dtype, core.device)


def _settled(core: Core) -> Graph:
    """Capture what ends a step of EM on a GPU: tables of parameters, and counts of 0."""
    with _device.using(core.device):
        empty = core.statistics.fresh()

    def settle(held: Statistics) -> None:
        core.parameters.refresh_tables()
        held.clear()

    return Graph(core.device, lambda: settle(empty), lambda: settle(core.statistics))

"""Steps of learning as CUDA graphs, on one GPU or a graph or two for each of several."""

from __future__ import annotations

from typing import Any

from rpukit import _device
from rpukit._kernels.entering import enters_device
from rpukit.circuits.core import CircuitLike, Core
from rpukit.circuits.learning.blocks import add_rows, rows_of
from rpukit.circuits.learning.cuda_graph import Captured, EMStep, Graph
from rpukit.circuits.learning.em import take_em_step
from rpukit.circuits.learning.spread import begin_totals, count_round
from rpukit.circuits.ops import em as steps
from rpukit.circuits.partials import BLOCK
from rpukit.circuits.peers import Peers, copy_across, has_numbers
from rpukit.circuits.queries.passes import Propagation, both_ways, gather

__all__ = ["CapturedApart", "captured"]

Array = Any


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


class _Share:
    """Samples of one GPU, and the graph that counts them.

    Parameters
    ----------
    core : Core
        Of that GPU.
    samples : tuple of array
        Codes, numbers and weights, which stay in place.
    out : array, shape (n, n_root)
        Log-likelihoods.
    at_once : bool
        Whether counts are added to the GPU's totals; else there are rows of them.
    """

    def __init__(
        self, core: Core, samples: tuple[Array, Array, Array], out: Array, *, at_once: bool
    ) -> None:
        self.core, self.samples, self.out, self.at_once = core, samples, out, at_once
        with _device.using(core.device):
            # Kept, since the graph uses the arrays that it holds.
            self._rows = None if at_once else rows_of(core, samples, out)
        call = self._rows or self._add
        self.graph = Graph(core.device, call, call)

    @classmethod
    def of_other(cls, core: Core, n: int, *, at_once: bool) -> _Share:
        """Make the share of a GPU beside the circuit's own, with arrays for n samples."""
        with _device.using(core.device):
            samples = (*core.unknown(n), core.encoder.weights(None, n))
            out = _device.empty(samples[2].shape, core.dtype, core.device)
        return cls(core, samples, out, at_once=at_once)

    def _add(self) -> None:
        core, (codes, numbers, weights) = self.core, self.samples
        propagation = Propagation(core.parameters)
        run = both_ways(core, propagation, (codes, numbers), weights, self.out)
        gather(core.parameters, run, core.statistics)

    def take(self, *samples: Array) -> None:
        """Copy samples from the circuit's GPU."""
        codes, numbers, weights = samples
        copy_across(codes, self.samples[0])
        if has_numbers(self.core):
            copy_across(numbers, self.samples[1])
        copy_across(weights, self.samples[2])

    def add(self) -> None:
        """Add the rows to the GPU's totals."""
        if self.at_once:
            return
        core = self.core
        with _device.using(core.device):
            chains, leaf_chains = self.graph.made
            add_rows(core.statistics, chains, leaf_chains, len(self.out), core.pieces)


@enters_device("__call__")
class CapturedApart(Captured):
    """`Captured` of a circuit on several GPUs: each counts its share of the samples.

    The order of additions is that of `count_round`, and so are the bits. A call while a block of
    samples is open does without graphs.
    """

    def _check_memory(self) -> None:
        peers: Peers = self._core.peers
        for core, part in zip(
            (*peers.cores, self._core), peers.blocks(0, self._n)[1:], strict=True
        ):
            core.memory.check(part.stop - part.start)

    def _captured(self) -> tuple[Graph, Array]:
        core, peers = self._core, self._core.peers
        _, *parts, self._last = peers.blocks(0, self._n)
        self._parts = [part for part in parts if part.start < part.stop]
        out = _device.empty(self._weights.shape, core.dtype, core.device)
        self._others = [
            _Share.of_other(there, part.stop - part.start, at_once=k == 0)
            for k, (there, part) in enumerate(zip(peers.cores, self._parts, strict=False))
        ]
        own = tuple(array[self._last] for array in (self._codes, self._numbers, self._weights))
        self._own = _Share(core, own, out[self._last], at_once=False)
        statistics, n_last = core.statistics, self._last.stop - self._last.start
        n_sample, empty = statistics.n_sample, statistics.fresh()

        def finish(held: Any, pseudocount: float | None) -> None:
            chains, leaf_chains = self._own.graph.made
            add_rows(held, chains, leaf_chains, n_last, core.pieces)
            steps.count_samples(held, out, self._weights)
            if pseudocount is not None:
                held.clear()
            self._learn(held, pseudocount)

        graph = Graph(core.device, lambda: finish(empty, 0.0), lambda: finish(statistics, None))
        statistics.n_sample = n_sample
        return graph, out

    def _graphs(self) -> list[Graph]:
        own = super()._graphs()
        return own + [share.graph for share in (*self._others, self._own) if own]

    def _launch(self, graph: Graph) -> None:
        core, peers = self._core, self._core.peers
        peers.update()
        if core.statistics.n_sample % BLOCK:
            self._without_graphs()
            return
        free = peers.event(core)
        for other, part in zip(self._others, self._parts, strict=True):
            other.take(*(array[part] for array in (self._codes, self._numbers, self._weights)))
        for other in self._others:
            if other.at_once:
                begin_totals(peers, core, other.core)
            other.graph.launch()
        self._own.graph.launch()
        before = core
        for other in self._others:
            if not other.at_once:
                peers.hand_on(before, other.core)
            other.add()
            before = other.core
        if self._others:
            peers.hand_on(before, core, free)
        for other, part in zip(self._others, self._parts, strict=True):
            copy_across(other.out, self._out[part])
        graph.launch()
        self._count()
        if self._em is not None:
            peers.update()  # now, while the host waits for nothing

    def _without_graphs(self) -> None:
        core, em = self._core, self._em
        propagation, ones = Propagation(core.parameters), self._weights
        samples = (self._codes, self._numbers, ones, ones, self._out)
        count_round(core.peers, core, propagation, None, *samples)
        if em is not None:
            take_em_step(core, em.step, em.pseudocount, em.keep_zeros)

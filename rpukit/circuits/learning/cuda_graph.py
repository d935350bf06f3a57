"""Steps of learning as CUDA graphs; the public call is `Circuit.captured`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.circuits.core import Core
from rpukit.circuits.learning.em import check_em, maximise
from rpukit.circuits.ops.evaluated import on_host
from rpukit.circuits.parameters import Statistics
from rpukit.circuits.queries.passes import gather, run_down, run_up
from rpukit.errors import DeviceError, ParameterError, ShapeError

__all__ = ["Captured", "EMStep", "Graph"]

Array = Any


@dataclass(frozen=True, slots=True)
class EMStep:
    """Numbers of the step of EM that follows each batch."""

    step: float
    pseudocount: float = 0.0
    keep_zeros: bool = False

    def __post_init__(self) -> None:
        check_em(self.step, self.pseudocount, self.keep_zeros)


class Graph:
    """Launches of a call as a CUDA graph, with memory of its own.

    The graph knows addresses alone. Arrays that the call makes are of memory that nothing else
    gets while the graph lives; those that it finds elsewhere have to be kept by the caller.

    Parameters
    ----------
    device : Device
    warm : callable
        Makes the same launches before, so that nothing is compiled or allocated in the capture.
    call : callable
    after : Graph, optional
        A graph that is launched before this one, which uses arrays that its call has made.

    Attributes
    ----------
    made : object
        Result of the call; its arrays are written at each launch.
    """

    def __init__(
        self,
        device: _device.Device,
        warm: Callable[[], Any],
        call: Callable[[], Any],
        after: Graph | None = None,
    ) -> None:
        cupy, self._device = _device.cupy(), device
        with _device.using(device):
            # Nothing else uses this memory between two launches.
            self._pool: Any = cupy.cuda.MemoryPool() if after is None else after._pool
            stream = cupy.cuda.Stream(non_blocking=True)
            cupy.cuda.get_current_stream().synchronize()
            allocator = kept_by_its_arrays(self._pool, cupy.cuda, device.index)
            with cupy.cuda.using_allocator(allocator), stream:
                warm()
                stream.synchronize()
                stream.begin_capture()
                try:
                    self.made = call()
                finally:
                    self._graph = stream.end_capture()

    def launch(self) -> None:
        """Launch on the current stream of the device."""
        with _device.using(self._device):
            self._graph.launch(_device.cupy().cuda.get_current_stream())

    def close(self) -> None:
        """Give back the memory that no array is in; the graph cannot be launched again."""
        with _device.using(self._device):
            self._graph = self.made = None
            self._pool.free_all_blocks()


def kept_by_its_arrays(pool: Any, cuda: Any, index: int) -> Callable[[int], Any]:
    """Return an allocator that takes memory of a pool, which lives as long as the last array.

    CuPy's memory has only a weak reference to its pool, which frees all of it in the end. But
    tables of the layout that are made for a graph's first launch stay with the circuit, and
    results with the user.
    """

    def malloc(size: int) -> Any:
        found = pool.malloc(size)
        if not found.ptr:  # of no bytes
            return found
        memory = cuda.UnownedMemory(found.ptr, size, (pool, found), index)
        return cuda.MemoryPointer(memory, 0)

    return malloc


@enters_device("__call__")
class Captured:
    """`Circuit.accumulate` or `Circuit.em_step` for one size of batch, as a CUDA graph.

    See `Circuit.captured`.

    Parameters
    ----------
    core : Core
        Of a circuit on a GPU.
    batch_size : int
    em : EMStep, optional

    Raises
    ------
    DeviceError, ParameterError, PlanError
    """

    def __init__(self, core: Core, batch_size: int, em: EMStep | None = None) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)):
            raise ParameterError(f"batch_size: got {batch_size!r}, need an integer from 1")
        if batch_size < 1:
            raise ParameterError(f"batch_size: got {batch_size}, need an integer from 1")
        if core.device.kind == "cpu":
            raise DeviceError(
                "captured: the circuit is on the CPU, need one on a GPU; on a CPU call accumulate "
                "or em_step"
            )
        self._core, self._n, self._em = core, int(batch_size), em
        self._check_memory()
        own = [r.leaf for r in core.parameters.rows.functions if on_host(r.leaf)]
        if em is not None and own:
            raise ParameterError(
                f"captured: the M step of {own[0]} runs on the host, and a graph cannot hold it: "
                "capture without step, and call em_step() after the batches"
            )
        self._codes, self._numbers = core.unknown(self._n)
        self._weights = core.encoder.weights(None, self._n)
        self._graph: Graph | None
        self._graph, self._out = self._captured()

    def _check_memory(self) -> None:
        self._core.memory.check(self._n)

    @property
    def _device(self) -> _device.Device:
        return self._core.device

    @property
    def _call_state(self) -> CallState:
        return self._core.call_state

    def _captured(self) -> tuple[Graph, Array]:
        statistics = self._core.statistics
        n_sample, exponent = statistics.n_sample, statistics.exponent
        empty = statistics.fresh() if n_sample else statistics

        def warm() -> None:
            self._run(empty)
            empty.clear()
            self._learn(empty, pseudocount=0.0)  # without counts it changes nothing

        def call() -> Array:
            out = self._run(statistics)
            self._learn(statistics)
            return out

        graph = Graph(self._core.device, warm, call)
        statistics.n_sample, statistics.exponent = n_sample, exponent
        return graph, graph.made

    def _learn(self, statistics: Statistics, pseudocount: float | None = None) -> None:
        """Take the step of EM, if there is one, and clear the counts."""
        if self._em is None:
            return
        em, parameters = self._em, self._core.parameters
        added = em.pseudocount if pseudocount is None else pseudocount
        maximise(parameters, statistics, em.step, added, em.keep_zeros)
        statistics.clear()

    def _run(self, statistics: Statistics) -> Array:
        parameters = self._core.parameters
        run = run_up(parameters, self._codes, self._numbers, keep=True)
        run_down(parameters, run, self._weights)
        gather(parameters, run, statistics)
        return run.out

    def __enter__(self) -> Captured:
        return self

    def __exit__(self, *_: object) -> None:
        for graph in self._graphs():
            graph.close()
        self._graph = None

    def _graphs(self) -> list[Any]:
        """What is to be closed in the end."""
        return [] if self._graph is None else [self._graph]

    @changes
    def __call__(
        self, x: Any, *, missing: Any = None, weights: Any = None, validate: str = "sync"
    ) -> Array:
        """Add the flows of samples to the statistics, and take the step of EM, if there is one.

        Parameters
        ----------
        x : array, shape (batch_size, n_variables)
        missing, weights : array, optional
            As of `Circuit.accumulate`.
        validate : {"sync", "deferred"}
            Values outside their leaves' support are an error at once, and nothing is changed; or
            they count as missing, no call waits for the GPU, and `check` says so later.

        Returns
        -------
        array
            Log-likelihoods; the next call overwrites them.

        Raises
        ------
        ShapeError, DTypeError, NonFiniteError, ParameterError, DeviceError
        """
        if validate not in ("sync", "deferred"):
            raise ParameterError(f'validate: got {validate!r}, need "sync" or "deferred"')
        core = self._core
        if validate == "sync":
            codes, numbers = core.encoder(x, missing)
            if len(codes) != self._n:
                raise ShapeError(
                    f"x: got {len(codes)} samples, this step was captured for {self._n}"
                )
            self._codes[:], self._numbers[:] = codes, numbers
        else:
            core.encoder.into(x, missing, self._codes, self._numbers)
        if weights is None:
            self._weights.fill(1)
        else:
            self._weights[:] = core.encoder.weights(weights, self._n)
        return self.replay()

    def check(self) -> None:
        """Synchronise; raise if a value of a call with ``validate="deferred"`` was wrong.

        Raises
        ------
        ParameterError
        """
        self._core.encoder.check()

    @changes
    def replay(self) -> Array:
        """Run the step again on the samples of the last call.

        Returns
        -------
        array
            Log-likelihoods.

        Raises
        ------
        DeviceError, ParameterError
        """
        if self._graph is None:
            raise DeviceError("this captured step was closed; call captured again")
        statistics = self._core.statistics
        if statistics.n_sample and statistics.exponent != 1:
            raise ParameterError(
                f"counts of exponent {statistics.exponent:g} are held, need 1: take a step of "
                "learning before"
            )
        self._call_state.changing()
        self._launch(self._graph)
        return self._out[:, 0] if self._out.shape[1] == 1 else self._out

    def _launch(self, graph: Graph) -> None:
        graph.launch()
        self._count()

    def _count(self) -> None:
        """Keep the host's numbers in step with the graph."""
        statistics = self._core.statistics
        self._core.parameters.version += 1
        statistics.n_sample = 0 if self._em is not None else statistics.n_sample + self._n

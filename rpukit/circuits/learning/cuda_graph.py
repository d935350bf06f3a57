"""A step of learning that is captured once and then replayed: `Circuit.captured`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rpukit import _device
from rpukit.circuits.learning.em import check_em, maximise
from rpukit.circuits.queries.passes import gather, run_down, run_up
from rpukit.errors import DeviceError, ParameterError, ShapeError

if TYPE_CHECKING:
    from rpukit.circuits.circuit import Circuit
    from rpukit.circuits.parameters import Statistics

__all__ = ["Captured", "Maximising"]

Array = Any


@dataclass(frozen=True, slots=True)
class Maximising:
    """A step of EM that follows each batch."""

    step: float
    pseudocount: float = 0.0
    keep_zeros: bool = False

    def __post_init__(self) -> None:
        check_em(self.step, self.pseudocount)


class Captured:
    """`Circuit.accumulate` or `Circuit.em_step` for one size of batch, as a CUDA graph.

    See `Circuit.captured`.

    Parameters
    ----------
    pc : Circuit
        On a GPU.
    batch_size : int
    em : Maximising, optional

    Raises
    ------
    DeviceError, ParameterError, PlanError
    """

    def __init__(self, pc: Circuit, batch_size: int, em: Maximising | None = None) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)):
            raise ParameterError(f"batch_size: got {batch_size!r}, need an integer from 1")
        if batch_size < 1:
            raise ParameterError(f"batch_size: got {batch_size}, need an integer from 1")
        if pc._device.kind == "cpu":
            raise DeviceError("only steps on a GPU are captured; on the CPU take accumulate")
        self._pc, self._n, self._em = pc, int(batch_size), em
        pc._memory.check(self._n)
        xp = _device.namespace_of(pc._device)
        shape = (self._n, pc.n_variables)
        self._codes = xp.full(shape, -1, np.int32)
        self._numbers = xp.full(shape, np.nan, pc.dtype)
        self._weights = xp.ones((self._n, pc.layout.root_rows.size), pc.dtype)
        # Memory of its own, which nothing else uses between two replays.
        self._pool = xp.cuda.MemoryPool()
        self._stream = xp.cuda.Stream(non_blocking=True)
        self._graph, self._out = self._captured()

    def _captured(self) -> tuple[Any, Array]:
        cupy, held = _device.cupy(), self._pc._statistics
        n_sample, empty = held.n_sample, held.fresh() if held.n_sample else held
        cupy.cuda.get_current_stream().synchronize()
        with cupy.cuda.using_allocator(self._pool.malloc), self._stream:
            # Compiles, and takes the memory that the capture takes again. Without counts a step of
            # EM changes nothing.
            self._run(empty)
            empty.clear()
            if self._em is not None:
                maximise(self._pc._parameters, empty, self._em.step, 0.0, self._em.keep_zeros)
            self._stream.synchronize()
            self._stream.begin_capture()
            out = self._run(held)
            if self._em is not None:
                em = self._em
                maximise(self._pc._parameters, held, em.step, em.pseudocount, em.keep_zeros)
                held.clear()
            graph = self._stream.end_capture()
        held.n_sample = n_sample
        return graph, out

    def _run(self, held: Statistics) -> Array:
        own = self._pc._parameters
        run = run_up(own, self._codes, self._numbers, keep=True)
        run_down(own, run, self._weights)
        gather(own, run, held)
        return run.out

    def __enter__(self) -> Captured:
        return self

    def __exit__(self, *_: object) -> None:
        self._graph = None

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
        pc = self._pc
        if validate == "sync":
            codes, numbers = pc._encoded(x, missing)
            if len(codes) != self._n:
                raise ShapeError(
                    f"x: got {len(codes)} samples, this step was captured for {self._n}"
                )
            self._codes[:], self._numbers[:] = codes, numbers
        else:
            pc._encoder.into(x, missing, self._codes, self._numbers)
        if weights is None:
            self._weights.fill(1)
        else:
            self._weights[:] = pc._weights(weights, self._n)
        return self.replay()

    def check(self) -> None:
        """Synchronise; raise if a value of a call with ``validate="deferred"`` was wrong.

        Raises
        ------
        ParameterError
        """
        self._pc._encoder.check()

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
            raise DeviceError("this captured step was closed: capture another one")
        held = self._pc._statistics
        if held.n_sample and held.exponent != 1:
            raise ParameterError("counts of another rule are held: take a step before")
        self._graph.launch(_device.cupy().cuda.get_current_stream())
        held.n_sample = 0 if self._em is not None else held.n_sample + self._n
        return self._out[:, 0] if self._out.shape[1] == 1 else self._out

"""Trainer: training steps executed by a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import Whole, flag, shown, takes
from rpukit._files import archive
from rpukit._files.schema import (
    TALLY,
    Spec,
    as_format_error,
    check_arrays,
    check_numbers,
    integer,
    record,
    text,
)
from rpukit._kernels.calls import CallState, changes, exclusive, replaces
from rpukit.errors import DTypeError, FormatError, ParameterError, ShapeError
from rpukit.summaries import Described, Summary
from rpukit.tiled.ir import Training
from rpukit.tiled.program import BasePlan
from rpukit.tiled.runtime.cpu import CpuExecutor
from rpukit.tiled.runtime.describe import trainer_summary
from rpukit.tiled.runtime.executor import Executor
from rpukit.tiled.runtime.transfers import Transfers

__all__ = ["Trainer"]

_FORMAT, _VERSION = "rpukit-training", 1
_HEADER = record(
    {"format": text(_FORMAT), "version": integer(_VERSION, _VERSION), "n_step": TALLY}
)
_REMEDY = "restore a state that was saved before (load), or make another trainer"


class Trainer(Described):
    """Trains a network by a plan; made by `Plan.trainer`.

    Parameters
    ----------
    plan : Plan
    training : Training
        The graphs that the plan was made of.
    device : {"cpu", "gpu"}
    n_accumulate : int
        Mini-batches whose gradients are added up for one update.
    parameters : mapping of str to array, optional
        Initial values; default: those of the training graphs.
    transfers : {"at_issue", "at_wait", "mixed", "threads"}
        Of a CPU: when copies are done. No choice changes a bit of a result.
    seed : int
        Of "mixed".
    undo : bool, optional
        Keep a copy of all persistent values, so that a failed step leaves them unchanged. Default:
        True on a CPU; on a GPU such a copy would cost host memory and time in every step.

    Raises
    ------
    PlanError, ParameterError, ShapeError, DTypeError, DeviceError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> b = rk.tiled.Builder("line")
    >>> x, y = b.input("x", (4, 1)), b.input("y", (4, 1))
    >>> loss = b.apply("MSELoss", b.apply("Gemm", x, b.parameter("w", [[0.0]])), y)
    >>> training = b.training(loss, rk.tiled.SGD(lr=0.1))
    >>> trainer = rk.tiled.plan(training, rk.tiled.siracusa_l2()).trainer(training)
    >>> data = np.arange(4, dtype=np.float32)[:, None]
    >>> losses = trainer.fit([(data, 3 * data)] * 20)
    >>> trainer.parameters()["w"].round(3).tolist()
    [[3.0]]
    """

    @takes(n_accumulate=Whole(1))
    def __init__(
        self,
        plan: BasePlan,
        training: Training,
        *,
        device: str = "cpu",
        n_accumulate: int = 1,
        parameters: Mapping[str, Any] | None = None,
        transfers: str | Transfers = "at_issue",
        seed: int = 0,
        undo: bool | None = None,
    ) -> None:
        if n_accumulate > 1 and not training.accumulators:
            raise ParameterError(
                f"n_accumulate: got {n_accumulate}, need 1: the training has no accumulators"
            )
        self.plan, self.training, self.n_accumulate = plan, training, n_accumulate
        self._undo = device == "cpu" if undo is None else undo
        self._device = _device.parse_device(device)
        self._call_state = CallState(_REMEDY)
        self._executor = _executor(plan, training, device, transfers, seed)
        self._n_step = 0  # mini-batches
        given = dict(training.initial if parameters is None else parameters)
        missing = [n for n in (*training.parameters, *training.kept) if n not in given]
        if missing:
            raise ParameterError(
                f"parameters: {', '.join(missing)} have no values to begin with; pass their "
                f"initial values as parameters="
            )
        for name in (*training.accumulators, *training.state):
            self._lasting(name)[...] = 0
        for name, value in given.items():
            self._put(name, self._lasting(name), value)

    def _describe(self) -> Summary:
        return trainer_summary(self)

    @property
    def n_step(self) -> int:
        """Number of mini-batches so far."""
        return self._n_step

    @changes
    def step(self, batch: Sequence[Any]) -> float:
        """Train on one mini-batch.

        Parameters
        ----------
        batch : tuple of arrays
            Data and labels or targets, then further inputs such as masks (`Training.batch`), in
            the shapes and dtypes of the graph.

        Returns
        -------
        float
            The loss, before the update.

        Raises
        ------
        ShapeError, DTypeError, TransferError
            Nothing is changed then (on a GPU: with ``undo=True``).
        """
        training, executor = self.training, self._executor
        given = self._checked(batch)
        kept = self._values(everything=True) if self._undo else None
        for name, value in zip(training.batch, given, strict=True):
            executor.array(name)[...] = value
        if training.accumulators:
            executor.array(training.reset)[...] = self._n_step % self.n_accumulate == 0
        self._call_state.changing()
        try:
            executor.run(0)
            loss = float(np.asarray(executor.array(training.loss)).reshape(-1)[0])
            if (self._n_step + 1) % self.n_accumulate == 0:
                executor.run(1)
        except BaseException:
            if kept is not None:
                for name, value in kept.items():
                    self._lasting(name)[...] = value
                self._call_state.unchanged()
            raise
        self._n_step += 1
        return loss

    @exclusive
    def fit(self, batches: Iterable[Sequence[Any]], *, progress: Any = None) -> np.ndarray:
        """Train on mini-batches, one after the other.

        Parameters
        ----------
        batches : iterable of tuple
        progress : callable, optional
            Called with (number of the mini-batch, loss) after each; or wrap `batches` in tqdm.

        Returns
        -------
        array, float64
            Losses.

        Raises
        ------
        ShapeError, DTypeError, TransferError
        """
        if progress is not None and not callable(progress):
            raise ParameterError(f"progress: got {shown(progress)}, need a function")
        several = isinstance(batches, Iterable) and getattr(batches, "ndim", 1) > 0
        if not several or isinstance(batches, (str, bytes, Mapping)):
            raise ParameterError(f"batches: got {shown(batches)}, need pairs of arrays")
        losses = []
        for number, batch in enumerate(batches):
            losses.append(self.step(batch))
            if progress is not None:
                progress(number, losses[-1])
        return np.array(losses)

    @exclusive
    def parameters(self, *, everything: bool = False) -> dict[str, np.ndarray]:
        """Copy the parameters.

        Parameters
        ----------
        everything : bool
            Also accumulators and the optimiser's state.

        Returns
        -------
        dict of str to array
        """
        return self._values(everything=everything)

    def _values(self, *, everything: bool) -> dict[str, np.ndarray]:
        names = self.training.parameters
        if flag(everything, "everything"):
            own = self.training
            names = (*names, *own.accumulators, *own.state, *own.kept)
        return {name: np.array(self._lasting(name)) for name in names}

    @exclusive
    def gradients(self) -> dict[str, np.ndarray]:
        """Copy the accumulated gradients of the last mini-batches.

        Returns
        -------
        dict of str to array
            By the names of the parameters.

        Raises
        ------
        ParameterError
            If there are no accumulators (`fuse_updates`).
        """
        if self.training.parameters and not self.training.accumulators:
            raise ParameterError(
                "gradients: this training has no accumulators that keep them; train without "
                "fuse_updates"
            )
        pairs = zip(self.training.parameters, self.training.accumulators, strict=True)
        return {name: np.array(self._lasting(own)) for name, own in pairs}

    @exclusive
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the training state to a ``.npz`` file; training resumes from it bit for bit.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        ParameterError, SaveError
            What was in the place of the file stays.

        Examples
        --------
        >>> trainer.save("state.npz")  # doctest: +SKIP
        """
        header = {"format": _FORMAT, "version": _VERSION, "n_step": self._n_step}
        archive.write(path, header, self.parameters(everything=True), finite=False)

    @replaces
    def load(self, path: str | os.PathLike[str]) -> None:
        """Restore the state written by `save`.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        FormatError
            If the file is damaged, or of another graph.
        OSError
            Nothing is changed in either case.

        Examples
        --------
        >>> trainer.load("state.npz")  # doctest: +SKIP
        """
        own = self._values(everything=True)

        def check(header: dict[str, Any], arrays: Mapping[str, Spec]) -> None:
            if (header.get("format"), header.get("version")) != (_FORMAT, _VERSION):
                raise FormatError(
                    f"not a training state of version {_VERSION}; need a file written by "
                    "Trainer.save"
                )
            _HEADER(header, "header")
            with as_format_error("state of another graph"):
                check_arrays(arrays, own)

        header, arrays, proved = archive.read(path, check)
        if not proved:  # a training that diverged may be saved
            with as_format_error(str(path)):
                check_numbers(arrays)
        self._call_state.changing()
        for name, value in arrays.items():
            self._lasting(name)[...] = value
        self._n_step = header["n_step"]

    def _lasting(self, name: str) -> Any:
        program = 0 if name in self._executor.graphs[0].tensors else 1
        return self._executor.array(name, program)

    def _checked(self, batch: Sequence[Any]) -> list[np.ndarray]:
        names = self.training.batch
        if not isinstance(batch, (tuple, list)) or len(batch) != len(names):
            raise ParameterError(
                "batch: need a pair of arrays: data, and labels or targets"
                if len(names) == 2
                else f"batch: need {len(names)} arrays: {', '.join(names)}"
            )
        found = []
        for name, value in zip(names, batch, strict=True):
            tensor = self.training.train.tensors[name]
            array = _host(value, name)
            found.append(_fitting(name, array, tensor.shape, tensor.dtype))
        return found

    def _put(self, name: str, place: Any, value: Any) -> None:
        place[...] = _fitting(name, _host(value, name), place.shape, place.dtype.name)


def _host(value: Any, name: str) -> np.ndarray:
    """Array on the CPU of what was given, with the type that it has."""
    known = isinstance(value, np.ndarray) or _device.is_cupy(value)
    if not known and _device.speaks_of_memory(value):
        value = _device.any_array(value, None, name)
        known = True
    return _device.to_numpy(value) if known else _device.listed(value, name)


def _fitting(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if array.shape != shape:
        raise ShapeError(f"{name}: got shape {array.shape}, need {shape}")
    whole = np.issubdtype(array.dtype, np.integer) and dtype == "int64"
    if array.dtype != dtype and not whole:
        raise DTypeError(f"{name}: got {array.dtype}, need {dtype}; use .astype")
    return array


def _executor(
    plan: BasePlan, training: Training, device: str, transfers: str | Transfers, seed: int
) -> Executor:
    graphs = (training.train, training.optimiser)
    if _device.parse_device(device).kind == "cpu":
        return CpuExecutor(plan, graphs, transfers, seed)
    from rpukit.tiled.runtime.gpu import GpuExecutor

    return GpuExecutor(plan, graphs, device)

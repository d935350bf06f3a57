"""Training of different parts of a network in turn, one part for each update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rpukit._checks import shown
from rpukit._kernels.calls import CallState, changes, exclusive
from rpukit.errors import ParameterError
from rpukit.tiled.runtime.trainer import Trainer

__all__ = ["Rotation"]

_REMEDY = "make another rotation"


class Rotation:
    """Trains by several trainers in turn, and passes the changed parameters on.

    Parameters
    ----------
    trainers : sequence of Trainer
        Of trainings that `freeze`, `train_last` or `train_rows` derived from one training. With
        gradients accumulated over n mini-batches, each takes n in a row.

    Raises
    ------
    ParameterError
        If the trainers differ in the number of accumulated mini-batches, or in a value to begin
        with.

    Notes
    -----
    The optimiser's state of a part changes in its own updates only. A device keeps a plan for
    each part, and one copy of the parameters; here each trainer has a copy.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> b = rk.tiled.Builder("line")
    >>> x, y = b.input("x", (1, 4)), b.input("y", (1, 6))
    >>> h = b.apply("Gemm", x, b.parameter("w", np.zeros((6, 4))), transB=1)
    >>> training = b.training(b.apply("MSELoss", h, y), rk.tiled.SGD(lr=0.5))
    >>> halves = [rk.tiled.methods.train_rows(training, {"w": r}) for r in ((0, 3), (3, 6))]
    >>> trainers = [rk.tiled.plan(one, rk.tiled.siracusa_l2()).trainer(one) for one in halves]
    >>> rotation = rk.tiled.methods.Rotation(trainers)
    >>> batch = np.ones((1, 4), np.float32), np.ones((1, 6), np.float32)
    >>> [round(rotation.step(batch), 3) for _ in range(3)]
    [1.0, 0.556, 0.111]
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        several = isinstance(trainers, (list, tuple)) and trainers
        if not several or not all(isinstance(one, Trainer) for one in trainers):
            raise ParameterError(f"trainers: got {shown(trainers)}, need a list of trainers")
        counts = {one.n_accumulate for one in trainers}
        if len(counts) != 1:
            raise ParameterError(
                f"trainers: got n_accumulate of {sorted(counts)}, need the same for all"
            )
        self.trainers = tuple(trainers)
        self._call_state = CallState(_REMEDY)
        self._device = trainers[0]._device
        self._n_step = sum(one.n_step for one in trainers)
        if self._n_step:
            raise ParameterError("trainers: some have trained before; need new ones")
        self._names = tuple(dict.fromkeys(n for t in trainers for n in t.training.parameters))
        for name in self._names:
            found = [array for one in trainers if (array := _value(one, name)) is not None]
            if any(not np.array_equal(found[0], other) for other in found[1:]):
                raise ParameterError(f"trainers: their values of {name} differ; need the same")

    @property
    def n_step(self) -> int:
        """Number of mini-batches so far."""
        return self._n_step

    @changes
    def step(self, batch: Sequence[Any]) -> float:
        """Train on one mini-batch by the trainer whose turn it is.

        Parameters
        ----------
        batch : tuple of arrays
            As for `Trainer.step`.

        Returns
        -------
        float
            The loss, before the update.

        Raises
        ------
        ShapeError, DTypeError, TransferError
        """
        every = self.trainers[0].n_accumulate
        own = self.trainers[self._n_step // every % len(self.trainers)]
        loss = own.step(batch)
        self._call_state.changing()
        self._n_step += 1
        if self._n_step % every == 0:
            for name in own.training.parameters:
                for other in self.trainers:
                    if other is not own and (array := _value(other, name)) is not None:
                        array[...] = own._lasting(name)
        return loss

    @exclusive
    def fit(self, batches: Iterable[Sequence[Any]]) -> np.ndarray:
        """Train on mini-batches, one after the other.

        Parameters
        ----------
        batches : iterable of tuple

        Returns
        -------
        array, float64
            Losses.

        Raises
        ------
        ShapeError, DTypeError, TransferError
        """
        if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes)):
            raise ParameterError(f"batches: got {shown(batches)}, need pairs of arrays")
        return np.array([self.step(batch) for batch in batches])

    @exclusive
    def parameters(self) -> dict[str, np.ndarray]:
        """Copy the parameters that one of the trainers trains.

        Returns
        -------
        dict of str to array
        """
        homes = {n: one for one in self.trainers for n in one.training.parameters}
        return {name: np.array(homes[name]._lasting(name)) for name in self._names}


def _value(trainer: Trainer, name: str) -> Any:
    """Find a value in the memory of a trainer, trained or not; None if it has none."""
    graph = trainer._executor.graphs[0]
    known = name in graph.inputs or name in graph.constants
    return trainer._lasting(name) if known and trainer._executor.has_home(name) else None

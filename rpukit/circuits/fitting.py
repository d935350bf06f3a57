"""Learning over epochs: `Circuit` inherits `fit`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from rpukit.circuits._base import Held
from rpukit.elementwise import random_fill
from rpukit.errors import ParameterError

__all__ = ["Fitting"]

Array = Any

_ORDER = 1 << 40  # child streams of the order of samples count from here


class Fitting(Held):
    """Learning over epochs, with early stopping."""

    em_step: Any
    log_likelihood: Any

    def fit(
        self,
        x: Any,
        *,
        n_epochs: int = 10,
        batch_size: int | None = None,
        step: float = 1.0,
        final_step: float | None = None,
        pseudocount: float = 0.1,
        keep_zeros: bool = False,
        missing: Any = None,
        x_valid: Any = None,
        patience: int | None = None,
        progress: bool = False,
    ) -> dict[str, list[float]]:
        """Learn by EM: the whole data at each step, or mini-batches in random order.

        Parameters
        ----------
        x : array, shape (n_sample, n_variables)
        n_epochs : int
        batch_size : int, optional
            Samples of a step; default all of them.
        step : float, in (0, 1]
            How far a step goes, see `em_step`. Mini-batches want small ones.
        final_step : float, optional
            The step falls to this one, linearly over all steps. Default: it stays.
        pseudocount : float
        keep_zeros : bool
        missing : array of bool, shape of x, optional
        x_valid : array, shape (n, n_variables), optional
            Data for early stopping; in the end the best parameters are taken.
        patience : int, optional
            Stop after so many epochs that were no better on x_valid.
        progress : bool
            Show a progress bar (needs tqdm).

        Returns
        -------
        dict
            "train" and, with x_valid, "valid": mean log-likelihood of each epoch; a sample of
            "train" counts before the step that it leads to.

        Raises
        ------
        ParameterError, ShapeError, DTypeError, NonFiniteError

        Notes
        -----
        The order of samples is drawn from the circuit's seed: the same call on the same circuit
        gives the same bits.

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> x = np.random.default_rng(0).integers(0, 2, (200, 4))
        >>> pc = rk.Circuit(rk.circuits.mixture(4, 3, rk.circuits.Bernoulli()), seed=1)
        >>> trace = pc.fit(x, n_epochs=5)["train"]
        >>> trace[-1] > trace[0]
        True
        """
        data = np.asarray(x)
        mask = None if missing is None else np.broadcast_to(np.asarray(missing), data.shape)
        size = len(data) if batch_size is None else batch_size
        for name, value in (("n_epochs", n_epochs), ("batch_size", size)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ParameterError(f"{name}: got {value!r}, need an integer from 1")
        if patience is not None and x_valid is None:
            raise ParameterError("patience needs x_valid")
        last = step if final_step is None else final_step
        n_step = -(-len(data) // size)
        trace: dict[str, list[float]] = {"train": []}
        if x_valid is not None:
            trace["valid"] = []
        best, since = (-np.inf, self._parameters.copied()), 0
        for epoch in _shown(n_epochs, progress):
            order = self._order(epoch, len(data)) if size < len(data) else np.arange(len(data))
            total = 0.0
            for k in range(n_step):
                part = order[k * size : (k + 1) * size]
                done = (epoch * n_step + k) / max(1, n_epochs * n_step - 1)
                ll = self.em_step(
                    data[part],
                    missing=None if mask is None else mask[part],
                    step=step + (last - step) * done,
                    pseudocount=pseudocount,
                    keep_zeros=keep_zeros,
                )
                total += float(np.sum(ll, dtype=np.float64))
            trace["train"].append(total / len(data))
            if x_valid is None:
                continue
            trace["valid"].append(float(np.mean(self.log_likelihood(x_valid), dtype=np.float64)))
            if trace["valid"][-1] > best[0]:
                best, since = (trace["valid"][-1], self._parameters.copied()), 0
            else:
                since += 1
            if patience is not None and since >= patience:
                break
        if x_valid is not None:
            self._parameters.take(best[1])
        return trace

    def _order(self, epoch: int, n: int) -> Array:
        draws = random_fill(self._stream.child(_ORDER + epoch), (n,), "bits")
        return np.argsort(draws, kind="stable")


def _shown(n: int, progress: bool) -> Iterator[int]:
    if not progress:
        return iter(range(n))
    return iter(import_module("tqdm.auto").tqdm(range(n), unit="epoch"))

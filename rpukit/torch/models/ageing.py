"""Figures of merit of a programmed model over time: `over_time` and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit._checks import integer, number
from rpukit.errors import ParameterError
from rpukit.torch._torch import torch
from rpukit.torch.models.hardware import drift_to, evaluating, program, unprogram

__all__ = ["Ageing", "over_time"]

Module = Any
HOUR, DAY, YEAR = 3600.0, 86400.0, 3.15e7
TIMES = (1.0, HOUR, DAY, 30 * DAY, YEAR)
_UNITS = (("y", YEAR), ("d", DAY), ("h", HOUR), ("s", 1.0))


@dataclass(frozen=True, slots=True)
class Ageing:
    """Scores of a model after programming, of several programmings.

    Attributes
    ----------
    times : array, shape (n_time,), seconds after programming
    scores : array, shape (n_program, n_time), float64
    digital : float
        Score with the digital weights.
    """

    times: np.ndarray
    scores: np.ndarray
    digital: float

    @property
    def mean(self) -> np.ndarray:
        """Mean over programmings, shape (n_time,)."""
        return np.asarray(self.scores.mean(axis=0))

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation over programmings, shape (n_time,); 0 for one programming."""
        n = len(self.scores)
        return np.asarray(self.scores.std(axis=0, ddof=1) if n > 1 else 0 * self.scores[0])

    def __str__(self) -> str:
        rows = [f"{'digital':>10}  {self.digital:.4f}"]
        for t, mean, spread in zip(self.times, self.mean, self.spread, strict=True):
            rows.append(f"{_name(t):>10}  {mean:.4f} +- {spread:.4f}")
        return "\n".join(rows)


def _name(t: float) -> str:
    unit, size = next(((u, s) for u, s in _UNITS if t >= s), ("s", 1.0))
    return f"{t / size:.3g} {unit}"


def over_time(
    model: Module,
    score: Callable[[Module], float],
    times: Iterable[float] = TIMES,
    *,
    n_program: int = 3,
    n_read: int = 1,
) -> Ageing:
    """Score a model with its digital weights, and at times after programming.

    Parameters
    ----------
    model : Module
        With inference tiles. It is evaluated without gradients; afterwards it has its digital
        weights again.
    score : callable
        Takes the model and returns a number, as its accuracy on test data.
    times : iterable of float, seconds after programming
        Default: a second, an hour, a day, 30 days and a year.
    n_program : int, at least 1
        Number of programmings, each with draws of its own.
    n_read : int, at least 1
        Number of readings at each time, over whose scores the mean is taken.

    Returns
    -------
    Ageing

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> model = rk.torch.convert(torch.nn.Linear(4, 3), rk.inference.PCMLike(), seed=7)
    >>> x = torch.ones(5, 4)
    >>> found = rk.torch.over_time(model, lambda m: m(x).abs().mean(), n_program=2)
    >>> found.scores.shape
    (2, 5)
    """
    at = np.array([number(t, "times", low=0) for t in times])
    n_event = integer(n_program, "n_program", low=1, what="programmings")
    n_number = integer(n_read, "n_read", low=1, what="readings")
    if not at.size:
        raise ParameterError("times: got none, need at least one time after programming")
    scores = np.zeros((n_event, at.size))
    with evaluating(model):
        unprogram(model)
        digital = _scored(score, model)
        for event in range(n_event):
            program(model, event=event)
            for k, t in enumerate(at):
                read = [
                    _scored(score, drift_to(model, float(t), number=n)) for n in range(n_number)
                ]
                scores[event, k] = np.mean(read)
        unprogram(model)
    return Ageing(at, scores, digital)


def _scored(score: Callable[[Module], float], model: Module) -> float:
    found = score(model)
    return float(found.detach() if isinstance(found, torch.Tensor) else found)

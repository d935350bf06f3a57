"""Transfers of the CPU executor: at issue, at the wait, in random order, or by threads."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np

from rpukit.errors import ParameterError

__all__ = ["MODES", "Transfers", "make_transfers"]


class Transfers(Protocol):
    """Interface of transfers: each copy is done at some moment between its start and its wait."""

    def start(self, token: int, inward: bool, source: np.ndarray, target: np.ndarray) -> None:
        """Begin a copy."""
        ...

    def wait(self, token: int) -> None:
        """Return when a copy is done."""
        ...

    def between(self) -> None:
        """Do pending work; called before every tile."""
        ...

    def drop(self) -> None:
        """Drop all pending copies, after an error."""
        ...


class AtIssue:
    """Transfers done at issue: the fastest mode, in which a missing wait does not show."""

    def start(self, token: int, inward: bool, source: np.ndarray, target: np.ndarray) -> None:
        target[...] = source

    def wait(self, token: int) -> None:
        """Do nothing: the copy is done."""

    def between(self) -> None:
        """Do nothing."""

    def drop(self) -> None:
        """Do nothing."""


class AtWait:
    """Transfers done at the wait; until then their target holds NaN."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def start(self, token: int, inward: bool, source: np.ndarray, target: np.ndarray) -> None:
        poison(target)
        self._open[token] = (source, target)

    def wait(self, token: int) -> None:
        done = self._open.pop(token, None)
        if done is not None:
            done[1][...] = done[0]

    def between(self) -> None:
        """Do nothing."""

    def drop(self) -> None:
        self._open.clear()


class Mixed(AtWait):
    """Transfers done at random moments and in random order, by a seed; some in two halves.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = np.random.default_rng(seed)

    def start(self, token: int, inward: bool, source: np.ndarray, target: np.ndarray) -> None:
        super().start(token, inward, source, target)
        if self._rng.random() < 0.3:
            half = len(source) // 2
            target[:half] = source[:half]
        self.between()

    def between(self) -> None:
        for token in self._rng.permutation(list(self._open)):
            if self._rng.random() < 0.3:
                self.wait(int(token))


class Threads:
    """Transfers done by two threads, one for each direction, in the order of issue."""

    def __init__(self) -> None:
        self._pools = [ThreadPoolExecutor(1, f"rpukit_transfer_{way}") for way in ("out", "in")]
        self._open: dict[int, Future[None]] = {}

    def start(self, token: int, inward: bool, source: np.ndarray, target: np.ndarray) -> None:
        self._open[token] = self._pools[inward].submit(np.copyto, target, source)

    def wait(self, token: int) -> None:
        self._open.pop(token).result()

    def between(self) -> None:
        """Do nothing."""

    def drop(self) -> None:
        for future in self._open.values():
            future.cancel()
        for future in self._open.values():
            if not future.cancelled():
                future.exception()
        self._open.clear()


MODES = ("at_issue", "at_wait", "mixed", "threads")


def make_transfers(mode: str, seed: int = 0) -> Transfers:
    """Make the transfers of a mode.

    Parameters
    ----------
    mode : {"at_issue", "at_wait", "mixed", "threads"}
    seed : int
        Of "mixed".

    Returns
    -------
    Transfers

    Raises
    ------
    ParameterError
    """
    if mode not in MODES:
        raise ParameterError(f"transfers: got {mode!r}, need one of {', '.join(MODES)}")
    if mode == "at_issue":
        return AtIssue()
    if mode == "at_wait":
        return AtWait()
    return Mixed(seed) if mode == "mixed" else Threads()


def poison(target: np.ndarray) -> None:
    """Fill an array with the bytes of NaN, so that a premature read shows."""
    target[...] = np.array(-1).astype(target.dtype)

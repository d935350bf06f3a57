"""The history of the steps of EM of `HMM.fit`."""

from __future__ import annotations

import sys

import numpy as np

__all__ = ["Monitor"]


class Monitor:
    """Record of the steps of EM of one `HMM.fit`.

    Parameters
    ----------
    tol : float
    n_iter : int
    verbose : bool

    Attributes
    ----------
    history : list of float
        Log-likelihood of all sequences before each step.
    iter : int
        Number of steps.
    """

    def __init__(self, tol: float, n_iter: int, verbose: bool) -> None:
        self.tol, self.n_iter, self.verbose = tol, n_iter, verbose
        self.history: list[float] = []
        self.iter = 0

    def report(self, log_prob: float) -> None:
        """Record a step.

        Parameters
        ----------
        log_prob : float
            Log-likelihood before the step.
        """
        if self.verbose:
            gain = log_prob - self.history[-1] if self.history else np.nan
            sys.stderr.write(f"{self.iter + 1:>10d} {log_prob:>16.8f} {gain:>+16.8f}\n")
        self.history.append(log_prob)
        self.iter += 1

    @property
    def converged(self) -> bool:
        """Whether the last gain was below `tol`, or all steps were taken."""
        gained = len(self.history) < 2 or not self.history[-1] - self.history[-2] < self.tol
        return self.iter == self.n_iter or not gained

    def __repr__(self) -> str:
        return f"Monitor(tol={self.tol}, n_iter={self.n_iter}, iter={self.iter})"

"""Probabilities of classes from logarithms, with the same bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit.elementwise import exp, log

Array = Any


def log_softmax(scores: np.ndarray) -> Array:
    """Normalise rows of logarithms; a row without any finite score gives equal shares.

    Parameters
    ----------
    scores : array, shape (n, n_classes), float64

    Returns
    -------
    array, shape (n, n_classes), float64
    """
    largest = scores.max(axis=1, keepdims=True)
    lost = ~np.isfinite(largest)
    with np.errstate(invalid="ignore"):  # inf - inf, in rows that are replaced
        shifted = np.where(lost, 0.0, scores - largest)
    powers, total = exp(shifted), np.zeros(len(scores))
    for k in range(scores.shape[1]):  # in the order of the classes, on every processor
        total += powers[:, k]
    return shifted - log(total)[:, None]


def softmax(scores: np.ndarray) -> Array:
    """Turn rows of logarithms into probabilities.

    Parameters
    ----------
    scores : array, shape (n, n_classes), float64

    Returns
    -------
    array, shape (n, n_classes), float64
    """
    return exp(log_softmax(scores))

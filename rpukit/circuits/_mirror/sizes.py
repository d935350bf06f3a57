"""Sizes of arrays that are worked on; `ndarray.max` makes a first call import SciPy's BLAS."""

# mypy: ignore-errors

from __future__ import annotations

from rpukit._exact.jit import jit


@jit
def largest_of(sizes):
    """Find the largest of some sizes."""
    most = 0
    for size in sizes:
        most = max(most, size)
    return most


@jit
def longest_of(first):
    """Find the size of the longest of some lists, from where each begins."""
    most = 0
    for i in range(first.size - 1):
        most = max(most, first[i + 1] - first[i])
    return most

"""Copies of lines of arrays in compiled functions.

A loop compiles in a tenth of a second. ``to[:] = source`` of two arrays takes 3 seconds at its
first use in a process: Numba also compiles the texts of the error that it would raise.
"""

# mypy: ignore-errors

from __future__ import annotations

from rpukit._exact.jit import jit

BOTH_TYPES = True


@jit
def copy(to, source):
    """Set the elements of a line to the first ones of another."""
    for i in range(to.size):
        to[i] = source[i]


@jit
def copy_turned(to, source):
    """Set an array to another whose rows are its columns."""
    for i in range(to.shape[0]):
        for j in range(to.shape[1]):
            to[i, j] = source[j, i]

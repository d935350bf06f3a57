"""Copies from one array to another, for compiled functions.

These loops compile in a tenth of a second. ``to[:] = source`` takes Numba up to 3.5 seconds, once
in each process that compiles one: it also compiles the message of a shape error.
"""

# mypy: ignore-errors

from __future__ import annotations

from rpukit._exact.jit import jit

BOTH_TYPES = True


@jit
def copy(to, source):
    """Copy as many elements of ``source`` as ``to`` has; both have one dimension."""
    for i in range(to.size):
        to[i] = source[i]


@jit
def copy_turned(to, source):
    """Copy the transpose of ``source`` to ``to``; both have two dimensions."""
    for i in range(to.shape[0]):
        for j in range(to.shape[1]):
            to[i, j] = source[j, i]

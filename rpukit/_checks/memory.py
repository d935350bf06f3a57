"""Sizes against memory, before anything is built."""

from __future__ import annotations

import os
import resource

from rpukit.errors import MemoryLimitError

__all__ = ["need_memory", "need_nodes"]

_NODE_BYTES = 1024  # of a node vector, with its edges, at the least

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def _memory() -> int:
    """Bytes of memory that this machine has, or the process may have."""
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    may = resource.getrlimit(resource.RLIMIT_AS)[0]
    return has if may == resource.RLIM_INFINITY else min(has, may)


def need_memory(n_byte: int, what: str, limit: int | None = None) -> None:
    """Check that a result, or an object to be built, fits the memory of the machine.

    Parameters
    ----------
    n_byte : int
    what : str
        What needs them, for the error message: "hmm of 2147483648 states".
    limit : int, optional
        Bytes that there are; default: the memory of this machine.

    Raises
    ------
    MemoryLimitError
    """
    limit = _memory() if limit is None else limit
    if n_byte > limit:
        raise MemoryLimitError(
            f"{what} needs {_size(n_byte)} of memory or more, there are {_size(limit)}: "
            "ask for less"
        )


def _size(n: int) -> str:
    for unit in _UNITS[:-1]:
        if n < 1024:
            return f"{n} {unit}"
        n >>= 10
    return f"{n} {_UNITS[-1]}" if n < 10**9 else f"over 10**9 {_UNITS[-1]}"


def need_nodes(n: int, what: str) -> None:
    """Check that a circuit of n node vectors fits the memory, before any is made.

    Parameters
    ----------
    n : int
    what : str
        Name of the structure, for the error message.

    Raises
    ------
    MemoryLimitError
    """
    need_memory(n * _NODE_BYTES, f"{what} of {n} node vectors")

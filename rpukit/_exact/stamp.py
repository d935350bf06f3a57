"""Fingerprint of all that machine code depends on: mirrors' sources, compiler and CPU."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba as nb
import numpy as np

_PACKAGE = Path(__file__).parents[1]
# Prefixes of the files and folders from which mirrors may take code or constants.
# `tests/test_layers.py` checks the imports of mirrors against it.
_PARTS = ("_exact", "_mirror", "_steps")
# Settings of Numba that do not affect the compiled code.
_NO_MATTER = (
    "CACHE",
    "DEBUG_CACHE",
    "DUMP",
    "NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "CUDA",
    "CUDADRV",
)

_loaded: set[tuple[str, str]] = set()  # files and modules: a float64 twin is read separately
_changed: set[str] = set()


def sources() -> list[str]:
    """All files that the stamp covers."""
    return [
        str(path)
        for path in sorted(_PACKAGE.rglob("*.py"))
        if any(part.startswith(_PARTS) for part in path.relative_to(_PACKAGE).parts)
    ]


@cache
def _digests() -> dict[str, bytes]:
    """Digests of all sources, computed when the first of them is loaded."""
    return {path: _digest(path) for path in sources()}


def _digest(path: Path | str) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest()


def covers(function: Callable[..., Any]) -> bool:
    """Whether the stamp covers the source of a function.

    A source that has changed since the stamp was computed is noted. No machine code is kept then,
    since it would be stored under the stamp of another source.
    """
    path = function.__code__.co_filename
    if path not in _digests():
        return False
    if (path, function.__module__) not in _loaded:
        _loaded.add((path, function.__module__))
        if _digest(path) != _digests()[path]:
            _changed.add(path)
    return True


def current() -> str | None:
    """Stamp of this process; None where sources changed while they were loaded."""
    return None if _changed else _whole()


@cache
def _whole() -> str:
    text = hashlib.sha256()
    for path, digest in _digests().items():
        text.update(Path(path).relative_to(_PACKAGE).as_posix().encode() + digest)
    versions = (nb.__version__, llvmlite.__version__, np.__version__, sys.version, sys.platform)
    text.update(repr((versions, _settings())).encode())
    return text.hexdigest()[:24]


def _settings() -> list[tuple[str, Any]]:
    """Settings of Numba from the environment and files: level of optimisation, name of the CPU."""
    return [
        (name, value)
        for name, value in sorted(vars(nb.config).items())
        if name.isupper()
        and not name.startswith(_NO_MATTER)
        and isinstance(value, (str, int, float, type(None)))
    ]

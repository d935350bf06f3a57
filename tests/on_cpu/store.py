"""What compilers made for the tests, kept by content: a second run compiles nothing again.

``RPUKIT_ON_CPU_CACHE`` names the folder; by default it is ``on_cpu`` in the cache folder of
rpukit. Files that nobody used for a month are removed at the end of a run.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from rpukit import _cache

DAY = 24 * 3600.0
MONTH = 30 * DAY


def folder() -> Path:
    """Where files are kept; made if need be."""
    named = os.environ.get("RPUKIT_ON_CPU_CACHE")
    base = None if named else _cache.trusted(make=True)
    place = Path(named) if named else (base or _own_folder()) / "on_cpu"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _cache.is_ours(place, linked=True):
        raise PermissionError(f"{place}: not yours, or others may write to it: its code is run")
    return place.absolute()


@cache
def _own_folder() -> Path:
    """Folder of this process, where there is no cache; it is removed at the end."""
    made = tempfile.TemporaryDirectory(prefix="rpukit-")
    atexit.register(made.cleanup)
    return Path(made.name)


def key_of(*texts: str) -> str:
    """A name for contents."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return the path of a file of the store, made by ``make(path)`` if it is not there.

    One process makes it while the others wait. If ``make`` writes nothing there is no file.
    """
    target = folder() / name
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        lock = target.with_name(f"{target.name}.lock")
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                if not target.exists():
                    _make(target, make)
            finally:
                # Whoever opened it before waits for this lock, and finds the file that is made.
                lock.unlink(missing_ok=True)
    elif time.time() - target.stat().st_mtime > DAY:
        os.utime(target)  # used today
    return target


def _make(target: Path, make: Callable[[Path], None]) -> None:
    """Make a file under another name, so that it is there whole or not at all."""
    scratch = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        make(scratch)
        if scratch.exists():
            os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def prune(older_than: float = MONTH) -> None:
    """Remove the files that were not used for some seconds."""
    for path in folder().rglob("*"):
        if path.is_file() and time.time() - path.stat().st_mtime > older_than:
            path.unlink(missing_ok=True)

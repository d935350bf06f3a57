"""The cache folder: compiled kernels, machine code of mirrors, the tuner's choices.

What is read from there is run, so a folder that others may write to, or that belongs to somebody
else, is not used.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # a system without locks of this kind
    fcntl = None  # type: ignore[assignment]

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_NOT_OURS = (
    "is not used: it has to be yours, and not for others to write to (chmod go-w), since what is "
    "in it is run"
)
_PATIENCE = 5.0  # seconds

_log = logging.getLogger("rpukit")
_told: set[str] = set()


def folder() -> Path | None:
    """Folder of the cache; None where ``RPUKIT_CACHE_DIR`` is set and empty."""
    named = os.environ.get("RPUKIT_CACHE_DIR")
    try:
        if named is not None:
            return Path(named).expanduser() if named else None
        return _usual_folder() / "rpukit"
    except RuntimeError as error:  # no such user, or one without a home
        _tell_once(named or "~", f"is not used: {error}")
        return None


def _usual_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named) if Path(named).is_absolute() else Path.home() / ".cache"


def read(name: str) -> bytes | None:
    """Contents of a file of the cache that nobody else could write, or None."""
    place = trusted()
    if place is None:
        return None
    try:
        with open(place / name, "rb") as file:
            if not _is_private(os.fstat(file.fileno())):
                _tell_once(place / name, _NOT_OURS)
                return None
            return file.read()
    except OSError:
        return None


def write(name: str, data: bytes) -> Path | None:
    """Store a file whole or not at all; a folder that cannot be written is told once."""
    place = trusted(make=True)
    return None if place is None else write_into(place, name, data)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep other processes from changing a file of the cache, where the system can.

    The lock is that of a file beside it, and ends with the process. It is not waited for longer
    than some seconds: the file is replaced whole in any case.
    """
    place = None if fcntl is None else trusted(make=True)
    if place is None:
        yield
        return
    with ExitStack() as stack:
        with suppress(OSError):
            file = stack.enter_context(open(place / f".{name}.lock", "a", encoding="ascii"))
            begin = time.monotonic()
            while not _lock(file) and time.monotonic() - begin < _PATIENCE:
                time.sleep(0.002)
        yield


def _lock(file: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_into(place: Path, name: str, data: bytes) -> Path | None:
    """Store a file in a folder as `write` does."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=place, prefix=".", suffix=name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(scratch, place / name)
        except OSError:
            Path(scratch).unlink(missing_ok=True)
            raise
    except OSError as error:
        _tell_once(place, f"cannot be written: {error}")
        return None
    return place / name


def private(name: str, part: str, *, make: bool, keep: int) -> Path | None:
    """Find a part of a folder of the cache that only its owner may write, and that is ours.

    What is read from there is run as code. A new part takes the place of the oldest, so that not
    more than ``keep`` stay.

    Returns
    -------
    Path or None
        None where there is no such folder and none can be made, and where others may write to it.
    """
    base = trusted(make=make)
    if base is None:
        return None
    whole = base / name
    try:
        if make:
            whole.mkdir(mode=0o700, exist_ok=True)
        if not is_ours(whole):
            _tell_once(whole, _NOT_OURS)
            return None
        if make and not (whole / part).is_dir():
            (whole / part).mkdir(mode=0o700, exist_ok=True)
            _prune(whole, keep)
    except FileNotFoundError:
        return None
    except OSError as error:
        _tell_once(whole, f"cannot be made: {error}")
        return None
    return whole / part


def trusted(*, make: bool = False) -> Path | None:
    """Folder of the cache, made if requested; None where others may write to it."""
    place = folder()
    if place is None:
        return None
    try:
        if make:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if "RPUKIT_CACHE_DIR" not in os.environ:
            _close_to_others(place)
        if is_ours(place, linked=True):
            return place
        _tell_once(place, _NOT_OURS)
    except FileNotFoundError:
        pass
    except OSError as error:
        _tell_once(place, f"cannot be made, and cannot be written: {error}")
    return None


def _close_to_others(place: Path) -> None:
    """Remove what an umask of 002 allowed earlier versions to give to a group."""
    status = place.lstat()
    ours = hasattr(os, "getuid") and status.st_uid == os.getuid()
    if ours and stat.S_ISDIR(status.st_mode) and status.st_mode & _OTHERS:
        place.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)


def is_ours(place: Path, *, linked: bool = False) -> bool:
    """Whether a folder belongs to this user, and nobody else may write to it."""
    status = place.stat() if linked else place.lstat()
    return stat.S_ISDIR(status.st_mode) and _is_private(status)


def _is_private(status: os.stat_result) -> bool:
    """Whether something belongs to this user, and nobody else may write to it."""
    return not hasattr(os, "getuid") or (
        status.st_uid == os.getuid() and not status.st_mode & _OTHERS
    )


def _prune(whole: Path, keep: int) -> None:
    """Remove all but the newest parts."""
    parts = sorted(whole.iterdir(), key=lambda part: part.stat().st_mtime, reverse=True)
    for part in parts[keep:]:
        shutil.rmtree(part, ignore_errors=True)


def _tell_once(place: Path | str, what: str) -> None:
    if str(place) not in _told:
        _told.add(str(place))
        _log.warning("cache folder %s %s", place, what)

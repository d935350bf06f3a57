"""The cache folder: compiled kernels, machine code of mirrors, the tuner's choices."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

_log = logging.getLogger("rpukit")
_told: set[str] = set()


def folder() -> Path | None:
    """Folder of the cache; None where ``RPUKIT_CACHE_DIR`` is set and empty."""
    named = os.environ.get("RPUKIT_CACHE_DIR")
    if named is not None:
        return Path(named).expanduser() if named else None
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "rpukit"


def read(name: str) -> bytes | None:
    """Contents of a file of the cache, or None."""
    place = folder()
    if place is None:
        return None
    try:
        return (place / name).read_bytes()
    except OSError:
        return None


def write(name: str, data: bytes) -> Path | None:
    """Store a file whole or not at all; a folder that cannot be written is told once."""
    place = folder()
    return None if place is None else write_into(place, name, data)


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
    base = folder()
    if base is None:
        return None
    whole = base / name
    try:
        if make:
            base.mkdir(parents=True, exist_ok=True)
            whole.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(whole):
            _tell_once(whole, "is not used: it has to be yours, and not for others to write to")
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


def _is_ours(place: Path) -> bool:
    """Whether a folder belongs to this user, and nobody else may write to it."""
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return False
    return not hasattr(os, "getuid") or (
        status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _prune(whole: Path, keep: int) -> None:
    """Remove all but the newest parts."""
    parts = sorted(whole.iterdir(), key=lambda part: part.stat().st_mtime, reverse=True)
    for part in parts[keep:]:
        shutil.rmtree(part, ignore_errors=True)


def _tell_once(place: Path, what: str) -> None:
    if str(place) not in _told:
        _told.add(str(place))
        _log.warning("cache folder %s %s", place, what)

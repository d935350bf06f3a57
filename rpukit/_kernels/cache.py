"""The cache folder: compiled kernels and the tuner's choices."""

from __future__ import annotations

import logging
import os
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
    if place is None:
        return None
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
        if str(place) not in _told:
            _told.add(str(place))
            _log.warning("cache folder %s cannot be written: %s", place, error)
        return None
    return place / name

"""Atomic writing: a file is replaced whole, or stays as it was."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rpukit.errors import SaveError

try:
    import fcntl
except ImportError:  # a system without locks of this kind
    fcntl: Any = None  # type: ignore[no-redef]

_NEW = 60.0  # seconds: a file may exist for a moment before it is locked

__all__ = ["replaced", "write_text"]


@contextmanager
def replaced(target: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of ``target`` when the block ends without an error.

    It is written beside the target, brought to the disk and renamed. A process that is killed
    leaves the old file whole, and perhaps a hidden file ``.<name>.<random>.part``, which a later
    call for the same target removes.

    Parameters
    ----------
    target : Path

    Yields
    ------
    binary file

    Raises
    ------
    SaveError
        If the disk is full or the folder cannot be written; the old file stays.
    """
    scratch = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        with open(scratch, "xb") as file:
            _lock(file)
            _remove_leftovers(target)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
        _sync_folder(target.parent)
    except OSError as error:
        what = error.strerror or str(error)
        raise SaveError(
            error.errno or 0, f"{target}: not written, what was there before stays: {what}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically, in UTF-8.

    Parameters
    ----------
    path : str or path
    text : str

    Raises
    ------
    SaveError
    """
    with replaced(Path(path)) as file:
        file.write(text.encode())


def _lock(file: IO[bytes]) -> bool:
    """Lock a file while its process lives; tell whether that was possible."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, AttributeError):
        return False
    return True


def _remove_leftovers(target: Path) -> None:
    """Remove what killed processes left: files that nobody writes, and that are not new."""
    with contextlib.suppress(OSError):
        for path in target.parent.glob(f".{glob.escape(target.name[:200])}.????????.part"):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                if time.time() - path.stat().st_mtime > _NEW and _lock(file):
                    path.unlink()


def _sync_folder(folder: Path) -> None:
    """Bring a renaming to the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

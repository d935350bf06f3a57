"""Files of JSON and arrays: a ``.npz`` that appears whole or not at all, without pickle."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rpukit.errors import FormatError, ParameterError

_HEADER = "header.json"


def write(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write a header and arrays; the path has to end in ``.npz``."""
    target = Path(path)
    if target.suffix != ".npz":
        raise ParameterError(f"path: got {target.name!r}, need a name that ends in .npz")
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(scratch, "wb") as file:
            both: dict[str, Any] = {_HEADER: text, **arrays}
            np.savez_compressed(file, **both)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what `write` wrote: the header and the arrays."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except (KeyError, ValueError, TypeError, zipfile.BadZipFile, EOFError) as error:
        raise FormatError(f"{path}: not a file of rpukit, or damaged: {error}") from error
    return (header if isinstance(header, dict) else {}), arrays

"""Files of JSON and arrays: a checked ``.npz`` without pickle, replaced whole or not at all.

The member ``header.json`` holds JSON as bytes; every other member is an array. The key
``checksum`` of the header is the SHA-256 of all else, in the form of `digest`. Files of earlier
versions have none. Nothing of a file is believed: sizes are compared with the bytes that are there
before memory is taken for them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from rpukit._files.schema import DAMAGE, Spec, check_memory, has_nan
from rpukit._files.writing import replaced
from rpukit.errors import FormatError, NonFiniteError, ParameterError

__all__ = ["CHECKSUM", "Stored", "digest", "read", "read_arrays", "write"]

_HEADER, CHECKSUM = "header.json", "checksum"
_DAMAGE = (*DAMAGE, struct.error, zipfile.BadZipFile, zlib.error)
_PIECE = 1 << 20  # bytes that are read at once
_STORED = 1 << 28  # bytes from which arrays of floats are not packed: deflate takes 30 MB/s
_MOST_PACKED = 1032  # bytes that deflate can make of one
_TEXT_PACKED = 200  # the same of JSON that says something, and a first allowance in bytes
_TEXT_FREE = 1 << 20
_JSON_GROWTH = 32  # bytes of memory of one byte of parsed JSON, at most
# The header as every version of NumPy writes it; structures and objects do not match.
_NPY = re.compile(
    rb"\{'descr': '([<>|=][a-zA-Z]\d{1,4})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}(?:, \d{1,19})*,?)?)\), \} *\n"
)
_KINDS = {np.dtype(code) for code in ("?", *"bhilqBHILQ", *"efd")}

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Stored:
    """Shape and type of an array that is still in its file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    info: zipfile.ZipInfo

    @property
    def nbytes(self) -> int:
        """Bytes of its numbers."""
        return prod(self.shape) * self.dtype.itemsize


def write(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    arrays: Mapping[str, Any],
    *,
    finite: bool = True,
) -> None:
    """Write a header and arrays.

    Parameters
    ----------
    path : str or path
        Ends in ``.npz``.
    header : mapping
        Whatever JSON can hold.
    arrays : mapping of str to array
    finite : bool
        Refuse NaN, which a file of this kind may not hold.

    Raises
    ------
    ParameterError, NonFiniteError, SaveError
    """
    target = Path(path)
    if target.suffix != ".npz":
        raise ParameterError(f"path: got {target.name!r}, need a name that ends in .npz")
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in whole.items():
        if finite and has_nan(array):
            raise NonFiniteError(f"array {name} holds NaN: {target} is not written")
    plain = json.loads(json.dumps(dict(header)))  # as it will be read
    stamped = {**plain, CHECKSUM: digest(plain, whole)}
    members = {_HEADER: np.frombuffer(json.dumps(stamped).encode(), np.uint8), **whole}
    with replaced(target) as file, _zipped(file) as zipped:
        for name, array in members.items():
            info = zipfile.ZipInfo(f"{name}.npy")  # without the time of day: equal files
            small = array.nbytes < _STORED or array.dtype.kind != "f"
            info.compress_type = zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED
            with zipped.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


@contextmanager
def _zipped(file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Write a zip file; an exception gives it up, since finishing it may raise another one."""
    zipped = zipfile.ZipFile(file, "w")
    try:
        yield zipped
    except BaseException:
        zipped.fp = None
        raise
    zipped.close()


def read(
    path: str | os.PathLike[str],
    check: Callable[[Header, Mapping[str, Spec]], None] | None = None,
) -> tuple[Header, Arrays, bool]:
    """Read what `write` wrote.

    Parameters
    ----------
    path : str or path
    check : callable, optional
        Called with the header, and shapes and types of the arrays, before memory is taken for
        them; raises `FormatError` if they do not fit together.

    Returns
    -------
    header : dict
    arrays : dict of str to array
    proved : bool
        Whether the file has a checksum: it is as it was written. Older ones have none.

    Raises
    ------
    FormatError
        If the file is damaged or was not written by rpukit.
    OSError
        If it cannot be read.
    """
    try:
        with _opened(path) as raw, zipfile.ZipFile(raw) as zipped:
            members = _members(zipped, os.fstat(raw.fileno()).st_size)
            if _HEADER not in members:
                raise FormatError(f"no member {_HEADER}")
            header = _header(zipped, members.pop(_HEADER))
            proved, claimed = CHECKSUM in header, header.pop(CHECKSUM, None)
            specs = {name: _spec(zipped, info) for name, info in members.items()}
            if check is not None:
                check(header, specs)
            arrays = _arrays(zipped, specs)
        if proved and claimed != digest(header, arrays):
            raise FormatError("the content does not match its checksum")
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the beginning of the file
            raise
        raise FormatError(f"{path}: not a file of rpukit, or damaged: {error}") from error
    except _DAMAGE as error:
        raise FormatError(
            f"{path}: not a file of rpukit, or damaged: {type(error).__name__}: {error}"
        ) from error
    return header, arrays, proved


def read_arrays(path: str | os.PathLike[str]) -> Arrays:
    """Read the arrays of any ``.npz`` file, checked likewise.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    dict of str to array

    Raises
    ------
    FormatError, OSError
    """
    try:
        with _opened(path) as raw, zipfile.ZipFile(raw) as zipped:
            members = _members(zipped, os.fstat(raw.fileno()).st_size)
            return _arrays(zipped, {name: _spec(zipped, info) for name, info in members.items()})
    except _DAMAGE as error:
        raise FormatError(f"{path}: not an .npz file, or damaged: {error}") from error


def _opened(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file: others may block, or never end."""
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
        raise FormatError("not a regular file")
    return open(path, "rb")


def _members(zipped: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """List the members by name, whose claims can be true in a file of this size."""
    found: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in zipped.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename or name in found:
            raise FormatError(f"member {info.filename!r}: there twice, or no array")
        if info.flag_bits & 1 or info.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise FormatError(f"member {info.filename!r}: encrypted, or packed in another way")
        total += info.compress_size
        packed = 1 if info.compress_type == zipfile.ZIP_STORED else _MOST_PACKED
        if total > size or info.file_size > packed * info.compress_size:
            raise FormatError(
                f"member {info.filename!r}: got {info.file_size} bytes of {info.compress_size} "
                f"packed ones in a file of {size}, which cannot be"
            )
        found[name] = info
    return found


def _header(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
    if info.file_size > _TEXT_PACKED * info.compress_size + _TEXT_FREE:
        raise FormatError(f"{_HEADER}: got {info.file_size} bytes, which say nothing")
    spec = _spec(zipped, info)
    if spec.dtype != np.uint8 or len(spec.shape) != 1:
        raise FormatError(f"{_HEADER}: got {spec.dtype} of shape {spec.shape}, need bytes")
    check_memory(_HEADER, _JSON_GROWTH * spec.nbytes)
    data = _array(zipped, _HEADER, spec).tobytes()
    header = json.loads(data, object_pairs_hook=_distinct)
    if not isinstance(header, dict):
        raise FormatError(f"{_HEADER}: need a dictionary")
    return header


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise FormatError(f"{_HEADER}: a name comes twice in one dictionary")
    return made


def _spec(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> Stored:
    """Read the head of a member, and compare its size with what it describes."""
    with zipped.open(info) as member:
        length, text = _head(member)
    found = _NPY.fullmatch(text)
    if found is None:
        raise FormatError(f"member {info.filename!r}: not an array of numbers")
    code, fortran, lengths = (part.decode("ascii") for part in found.groups())
    try:
        dtype = np.dtype(code)
    except TypeError:
        dtype = np.dtype(object)
    if dtype not in _KINDS or not dtype.isnative:
        raise FormatError(f"member {info.filename!r}: got numbers of type {code!r}")
    shape = tuple(int(n) for n in lengths.split(",") if n.strip())
    spec = Stored(shape, dtype, fortran == "True", info)
    if length + spec.nbytes != info.file_size:
        raise FormatError(
            f"member {info.filename!r}: got {info.file_size} bytes, need {length + spec.nbytes} "
            f"for {dtype} of shape {shape}"
        )
    return spec


def _head(member: IO[bytes]) -> tuple[int, bytes]:
    """Read the length of a ``.npy`` head, with what goes before it, and its text."""
    magic = member.read(8)
    if magic[:6] != b"\x93NUMPY" or magic[6:] not in (b"\x01\x00", b"\x02\x00"):
        raise FormatError("a member is no array of NumPy")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(member.read(width), "little")
    if length > 1 << 12:
        raise FormatError(f"a member has a head of {length} bytes")
    return 8 + width + length, member.read(length)


def _arrays(zipped: zipfile.ZipFile, specs: Mapping[str, Stored]) -> Arrays:
    check_memory("arrays", sum(spec.nbytes for spec in specs.values()))
    return {name: _array(zipped, name, spec) for name, spec in specs.items()}


def _array(zipped: zipfile.ZipFile, name: str, spec: Stored) -> np.ndarray:
    """Read one array, to the end of its member, where its CRC is compared."""
    flat = np.empty(prod(spec.shape), spec.dtype)
    room: np.ndarray = flat.view(np.uint8)
    with zipped.open(spec.info) as member:
        _head(member)
        place = 0
        while piece := member.read(_PIECE):
            room[place : place + len(piece)] = np.frombuffer(piece, np.uint8)
            place += len(piece)
    if place != spec.nbytes:
        raise FormatError(f"array {name}: got {place} bytes, need {spec.nbytes}")
    if spec.dtype == bool and (flat.view(np.uint8) > 1).any():
        raise FormatError(f"array {name}: got bytes that are neither true nor false")
    return flat.reshape(spec.shape, order="F" if spec.fortran else "C")


def digest(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> str:
    """Compute the SHA-256 of JSON, and of names, types, shapes and bytes of arrays.

    Parameters
    ----------
    header : mapping
        As read from JSON, so that names are text and there are no tuples.
    arrays : mapping of str to array, optional

    Returns
    -------
    str
    """
    arrays = arrays or {}
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    total = hashlib.sha256(f"rpukit 1\n{text}\n".encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        about = [name, array.dtype.str, list(array.shape)]
        total.update(json.dumps(about).encode() + b"\n")
        total.update(array.reshape(-1).view(np.uint8).data)
    return f"sha256:{total.hexdigest()}"

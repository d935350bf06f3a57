"""Cache of the mirrors' machine code: one file for each function and types of arguments.

A file holds a checksum and the compiled function as Numba pickles it. Functions among the types
of arguments are written by name. A file that is damaged or from another version is ignored: the
function is compiled again and the file is overwritten.
"""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
from typing import Any

from numba.core import sigutils, types
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import NumbaPickler

from rpukit import _cache
from rpukit._exact import stamp
from rpukit._exact.function import Part

FOLDER = "cpu"
_STAMPS = 3  # number of stamps whose code is kept: the current one and the last two
_HEAD = b"rpukit machine code 1\n"
_log = logging.getLogger("rpukit")
_told: set[str] = set()

known: dict[str, Any] = {}  # the compiled functions of rpukit, by name


class _Pickler(NumbaPickler):  # type: ignore[misc]
    """Write functions of rpukit by name, and refuse others."""

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        kind = "type" if isinstance(obj, types.Dispatcher) else "function"
        made = obj.dispatcher if kind == "type" else obj
        if not isinstance(made, Dispatcher):
            return None
        name = f"{made.py_func.__module__}.{made.py_func.__qualname__}"
        if known.get(name) is not made:
            raise pickle.PicklingError(f"{name} is not a function of rpukit")
        return kind, name


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: tuple[str, str]) -> Any:
        kind, name = pid
        return types.Dispatcher(known[name]) if kind == "type" else known[name]


class MachineCode(_Cache):  # type: ignore[misc]
    """Cache in which Numba finds and stores the compiled versions of one function."""

    def __init__(self, name: str, options: str) -> None:
        self._name, self._options, self._enabled = name, options, True

    @property
    def cache_path(self) -> str | None:
        """Folder of the cached files."""
        place = _place()
        return None if place is None else str(place)

    def enable(self) -> None:
        """Turn the cache on."""
        self._enabled = True

    def disable(self) -> None:
        """Turn the cache off."""
        self._enabled = False

    def flush(self) -> None:
        """Do nothing: invalid files are overwritten."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the compiled function of a signature; None if it has to be compiled."""
        found = self._load(sig, target_context) if self._enabled else None
        if found is None:
            _tell(self._name)
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        place = _place()
        if place is None:
            return None
        try:
            data = (place / self._file(sig, target_context.codegen())).read_bytes()
        except OSError:
            return None
        payload = data[len(_HEAD) + 32 :]
        if data[: len(_HEAD) + 32] != _HEAD + hashlib.sha256(payload).digest():
            _log.info("machine code of %s in %s is damaged", self._name, place)
            return None
        try:
            rtsys.initialize(target_context)  # the runtime that compiled code needs
            parts = _Unpickler(io.BytesIO(payload)).load()
            found = CompileResult._rebuild(target_context, *parts)
        except Exception as error:  # any error: the function can always be compiled
            _log.info("machine code of %s in %s is of no use: %r", self._name, place, error)
            return None
        return found if found.signature.args == sigutils.normalize_signature(sig)[0] else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled function."""
        if isinstance(data.library, Part) or data.library.has_dynamic_globals or data.lifted:
            return
        place = _place(make=True) if self._enabled else None
        if place is None:
            return
        buffer = io.BytesIO()
        try:
            # The annotated source of a function is long and is not used here.
            _Pickler(buffer, protocol=5).dump(data._replace(type_annotation="")._reduce())
        except Exception as error:  # an argument is a function from outside rpukit
            _log.debug("machine code of %s is not kept: %r", self._name, error)
            return
        payload = buffer.getvalue()
        whole = _HEAD + hashlib.sha256(payload).digest() + payload
        _cache.write_into(place, self._file(sig, data.codegen), whole)

    def _file(self, sig: Any, codegen: Any) -> str:
        args, result = sigutils.normalize_signature(sig)
        kinds = [str(kind) for kind in (*args, result)]
        text = repr((self._name, self._options, kinds, codegen.magic_tuple()))
        name = self._name.rpartition(".")[2]
        return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _place(make: bool = False) -> Any:
    """Folder of this process's stamp, or None without one."""
    now = stamp.current()
    return None if now is None else _cache.private(FOLDER, now, make=make, keep=_STAMPS)


def _tell(name: str) -> None:
    """Warn once per process that compiling takes time."""
    if not _told:
        _told.add(name)
        place = _place(make=True)
        kept = "for this process" if place is None else f"once: the code is kept in {place.parent}"
        function = name.rpartition(".")[2]
        _log.warning("compiling %s, and what else is used, for this CPU, %s", function, kept)

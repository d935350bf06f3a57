"""The one way in which kernels are launched: on CuPy's current stream, with every argument checked.

CuPy checks nothing and passes a Python float as a double; here the signature in the ``.cu`` decides.
Inside `rpukit.testing.on_cpu` the same call runs the source on the CPU, by a runner that tests install.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import cache as disk
from rpukit._kernels import compile as nvrtc
from rpukit._kernels import source as sources
from rpukit._kernels.source import Parameter, Source
from rpukit.errors import LaunchError

_log = logging.getLogger("rpukit")
_lock = threading.RLock()

CTYPES = {
    "int": np.int32, "unsigned": np.uint32, "unsigned int": np.uint32, "u32": np.uint32,
    "long long": np.int64, "i64": np.int64, "unsigned long long": np.uint64, "u64": np.uint64,
    "float": np.float32, "double": np.float64, "unsigned short": np.uint16, "unsigned char": np.uint8,
}  # fmt: skip
_STATIC_SHARED = 48 * 1024  # more dynamic shared memory than this has to be asked for

Runner = Callable[..., None]
_runner: Runner | None = None


def set_runner(runner: Runner | None) -> None:
    """Install what runs kernels inside ``testing.on_cpu``."""
    global _runner
    _runner = runner


class Kernel:
    """One entry point of a ``.cu`` file; compiled when it is first launched, thread-safe.

    Parameters
    ----------
    name : str
        Stem of the file in ``kernels_cu``.
    entry : str, optional
        Entry point; default: the name.
    path : path, optional
        A source outside ``kernels_cu``.
    headers : mapping of str to str, optional
        Texts that stand in for headers of those names.
    """

    def __init__(self, name: str, entry: str | None = None, *, path: Path | None = None,
                 headers: Mapping[str, str] | None = None) -> None:  # fmt: skip
        self.name, self.entry = name, entry or name
        self._path, self._headers = path, headers
        self._variants: dict[tuple[tuple[str, Any], ...], Variant] = {}

    def source(self) -> Source:
        """Read the source."""
        if self._path is None and not self._headers:
            return sources.load(self.name)
        path = self._path or sources.folder() / f"{self.name}.cu"
        return sources.read(path, self._headers)

    def variant(self, macros: Mapping[str, Any] | None = None) -> Variant:
        """The kernel with these macros set; hold on to it where every microsecond counts."""
        key = tuple(macros.items()) if macros else ()
        found = self._variants.get(key)
        if found is None:
            with _lock:
                found = self._variants.setdefault(key, Variant(self.source(), self.entry, dict(key)))
        return found

    def launch(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], *, shared: int = 0,
               macros: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        """Launch on CuPy's current stream.

        Parameters
        ----------
        grid, block : sequence of int
            Numbers of blocks and of threads, up to three each. An empty grid launches nothing.
        args : sequence
            In the order of the signature; arrays, Python or NumPy scalars, None for a null pointer.
        shared : int
            Bytes of dynamic shared memory.
        macros : mapping, optional

        Raises
        ------
        LaunchError, KernelCompileError, DeviceError
        """
        self.variant(macros).launch(grid, block, args, shared)


class Variant:
    """A kernel with its macros set."""

    def __init__(self, source: Source, entry: str, macros: dict[str, Any]) -> None:
        if entry not in source.entries:
            raise LaunchError(f"{source.name}.cu has no entry point {entry!r}, only {sorted(source.entries)}")
        self.source, self.entry, self.macros = source, entry, macros
        self.parameters = source.entries[entry]
        self._check = _checker(entry, [(p, source.resolve(p.ctype, macros)) for p in self.parameters])
        self._functions: dict[int, Any] = {}
        self._shared = _STATIC_SHARED

    def launch(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared: int = 0) -> None:
        """Check the arguments and launch; see `Kernel.launch`."""
        if len(args) != len(self.parameters):
            raise LaunchError(f"{self.entry}: got {len(args)} arguments, need {len(self.parameters)}: {self._names()}")
        ready = self._check(*args)
        if 0 in grid:
            return
        if _device._emulation_depth:
            self._run_on_cpu(grid, block, ready, shared)
            return
        device = self._device_of(ready) if _several_gpus() else 0
        function = self._functions.get(device) or self._load(device, ready)
        if shared > self._shared:
            for f in self._functions.values():
                f.max_dynamic_shared_size_bytes = shared
            self._shared = shared
        if device == 0 and not _several_gpus():
            function(grid, block, ready, shared_mem=shared)
            return
        with _device.cupy().cuda.Device(device):
            function(grid, block, ready, shared_mem=shared)

    def _run_on_cpu(self, grid: Sequence[int], block: Sequence[int], ready: tuple[Any, ...], shared: int) -> None:
        if _runner is None:
            raise LaunchError("on_cpu() needs a runner: it is installed by the tests of a checkout")
        _runner(self, tuple(grid), tuple(block), list(ready), shared)

    def _device_of(self, ready: tuple[Any, ...]) -> int:
        found = -1
        for parameter, a in zip(self.parameters, ready, strict=True):
            if parameter.pointer and a is not None:
                try:
                    device = a.data.device_id
                except AttributeError:
                    raise LaunchError(
                        f"{self.entry}: {parameter.name} is on the CPU, need an array on a GPU"
                    ) from None
                if found not in (-1, device):
                    raise LaunchError(f"{self.entry}: {parameter.name} is on gpu:{device}, others on gpu:{found}")
                found = device
        return found if found >= 0 else _current_device()

    def _load(self, device: int, ready: tuple[Any, ...]) -> Any:
        self._device_of(ready)  # CuPy would name no parameter for an array on the CPU
        with _lock:
            if device not in self._functions:
                cupy = _device.cupy()
                with cupy.cuda.Device(device) as there:
                    arch = nvrtc.architecture(there.compute_capability)
                    function = self._module(cupy, arch).get_function(self.entry)
                    if self._shared > _STATIC_SHARED:
                        function.max_dynamic_shared_size_bytes = self._shared
                self._functions[device] = function
            return self._functions[device]

    def _module(self, cupy: Any, arch: str) -> Any:
        data = nvrtc.cubin(self.source, arch, self.macros)
        # RawModule wants a file; the driver has read it when get_function returns.
        with tempfile.NamedTemporaryFile(prefix="rpukit_", suffix=".cubin") as file:
            file.write(data)
            file.flush()
            module = cupy.RawModule(path=file.name)
            module.compile()
        _log.info("loaded %s for %s", self.source.name, arch)
        return module

    def _names(self) -> str:
        return ", ".join(f"{p.ctype}{' *' if p.pointer else ' '}{p.name}" for p in self.parameters)


@cache
def _several_gpus() -> bool:
    return _device.gpu_count() > 1


def _current_device() -> int:
    return int(_device.cupy().cuda.runtime.getDevice())


def _checker(entry: str, parameters: list[tuple[Parameter, str]]) -> Callable[..., tuple[Any, ...]]:
    """A function that takes the arguments of a launch and returns them as the kernel takes them.

    It is written out for the signature, since a launch costs microseconds and a call for each argument
    would double that: one line looks whether an argument is what it nearly always is, and leaves the
    rest to `_cast`.
    """
    names = [f"a{i}" for i in range(len(parameters))]
    scope: dict[str, Any] = {}
    lines = [f"def check({', '.join(names)}):"]
    for i, (parameter, ctype) in enumerate(parameters):
        if ctype not in CTYPES:
            raise LaunchError(f"{entry}: parameter {parameter.name} has the type {ctype!r}, which is not known")
        kind = scope[f"kind{i}"] = CTYPES[ctype]
        scope[f"cast{i}"] = _cast_pointer if parameter.pointer else _cast_scalar
        scope[f"where{i}"] = f"{entry}: {parameter.name}"
        if parameter.pointer:
            scope[f"dtype{i}"] = np.dtype(kind)
            usual = f"(a{i} is None or (a{i}.__class__ is gpu_array and a{i}.dtype is dtype{i} and a{i}._c_contiguous))"
        else:
            usual = f"a{i}.__class__ is kind{i}"
        lines.append(f"    if not {usual}: a{i} = cast{i}(where{i}, kind{i}, a{i})")
    lines.append(f"    return ({', '.join(names)},)")
    scope["gpu_array"] = _device.cupy_array_class()
    exec("\n".join(lines), scope)
    check: Callable[..., tuple[Any, ...]] = scope["check"]
    return check


def _cast_pointer(where: str, kind: Any, a: Any) -> Any:
    dtype = np.dtype(kind)
    if not (isinstance(a, np.ndarray) or _device.is_cupy(a)):
        raise LaunchError(f"{where}: got {type(a).__name__}, need an array of {dtype}")
    if a.dtype != dtype or not a.flags.c_contiguous:
        got = f"{a.dtype}{list(a.shape)}" + ("" if a.flags.c_contiguous else ", not C-contiguous")
        raise LaunchError(f"{where}: got {got}, need a C-contiguous array of {dtype}")
    return a


def _cast_scalar(where: str, kind: Any, a: Any) -> Any:
    if np.dtype(kind).kind == "f":
        if not isinstance(a, (float, int, np.number)):
            raise LaunchError(f"{where}: got {a!r}, need a number")
        return kind(a)
    if not isinstance(a, (int, np.integer, np.bool_)):
        raise LaunchError(f"{where}: got {a!r}, need an integer")
    limits = _limits(kind)
    if not limits[0] <= a <= limits[1]:
        raise LaunchError(f"{where}: got {a}, need an integer in [{limits[0]}, {limits[1]}]")
    return kind(a)


@cache
def _limits(kind: Any) -> tuple[int, int]:
    return int(np.iinfo(kind).min), int(np.iinfo(kind).max)


def warm_up() -> int:
    """Compile every kernel with its default macros for the current GPU, into the cache folder.

    Returns
    -------
    int
        Number of kernels.

    Raises
    ------
    DeviceError, KernelCompileError
    """
    _device.parse_device("gpu")
    capability = _device.cupy().cuda.Device().compute_capability
    for name in sources.names():
        nvrtc.cubin(sources.load(name), nvrtc.architecture(capability), {})
    return len(sources.names())


def describe_cache() -> str:
    """Where compiled kernels are kept, for people."""
    place = disk.folder()
    return "off (RPUKIT_CACHE_DIR is empty)" if place is None else str(place)

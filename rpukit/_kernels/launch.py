"""Launch kernels with checked arguments, on the current stream of the arrays' device.

Inside `rpukit.testing.on_cpu` the same call runs the source on the CPU, by a runner that the tests
install. The arguments are checked in the same way, with the same error messages.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rpukit import _cache as disk
from rpukit import _device
from rpukit._kernels import clock, driver
from rpukit._kernels import compile as nvrtc
from rpukit._kernels import source as sources
from rpukit._kernels.arguments import Check, checker, device_of, fault_of_shape, pack
from rpukit._kernels.source import Source
from rpukit.errors import LaunchError

_log = logging.getLogger("rpukit")
_lock = threading.RLock()

_USUAL_SHARED = 32 * 1024  # more dynamic shared memory is requested: with static arrays 48 KiB

Runner = Callable[["Variant", tuple[int, ...], tuple[int, ...], Sequence[Any], int], None]
_runner: Runner | None = None


def set_runner(runner: Runner | None) -> None:
    """Install the runner of kernels inside ``testing.on_cpu``.

    Parameters
    ----------
    runner : callable or None
        Called with (variant, grid, block, arguments, bytes of dynamic shared memory).

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.testing.set_runner(None)  # doctest: +SKIP
    """
    global _runner
    _runner = runner


class Launched(NamedTuple):
    """Record of a launch: the kernel, its shape and its arguments."""

    variant: Variant
    grid: Sequence[int]
    block: Sequence[int]
    args: Sequence[Any]
    shared: int
    early: bool = False
    together: bool = False
    device: int | None = None  # index of the GPU; None for the runner on the CPU

    @property
    def parameters(self) -> Sequence[Any]:
        return self.variant.parameters


class _Here(threading.local):
    launches: list[Launched] | None = None


_here = _Here()


@contextmanager
def recording() -> Iterator[list[Launched]]:
    """Record this thread's launches in a list; an enclosing recording receives them too."""
    before, seen = _here.launches, list[Launched]()
    try:
        _here.launches = seen
        yield seen
    finally:
        _here.launches = before
        if before is not None:
            before.extend(seen)


@contextmanager
def not_recording() -> Iterator[None]:
    """Exclude the launches of this block from an enclosing recording."""
    before = _here.launches
    try:
        _here.launches = None
        yield
    finally:
        _here.launches = before


def is_recording() -> bool:
    """Whether this thread's launches are being recorded."""
    return _here.launches is not None


class Kernel:
    """One entry point of a ``.cu`` file, compiled on its first launch; thread-safe.

    Parameters
    ----------
    name : str
        Stem of the file in ``kernels_cu``.
    entry : str, optional
        Entry point; default: the name.
    path : path, optional
        A source outside ``kernels_cu``.
    headers : mapping of str to str, optional
        Texts that replace the headers of those names.
    """

    def __init__(
        self,
        name: str,
        entry: str | None = None,
        *,
        path: Path | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.entry = name, entry or name
        self._path, self._headers = path, dict(headers or {})
        self._source: Source | None = None
        self._variants: dict[tuple[tuple[str, Any], ...], Variant] = {}

    def source(self) -> Source:
        """Source of the kernel, read once."""
        if self._source is None:
            if self._path is None and not self._headers:
                self._source = sources.load(self.name)
            else:
                path = self._path or sources.folder() / f"{self.name}.cu"
                self._source = sources.read(path, self._headers)
        return self._source

    def variant(self, macros: Mapping[str, Any] | None = None) -> Variant:
        """Return the kernel with these macros set; keep the result where microseconds matter."""
        key = tuple(macros.items()) if macros else ()
        found = self._variants.get(key)
        if found is None:
            with _lock:
                if key not in self._variants:
                    self._variants[key] = Variant(self.source(), self.entry, dict(key))
                found = self._variants[key]
        return found

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        *,
        shared: int = 0,
        macros: Mapping[str, Any] | None = None,
        early: bool = False,
        together: bool = False,
    ) -> None:
        """Launch on the current stream of the device that the arrays are on.

        Parameters
        ----------
        grid, block : tuple of int
            Numbers of blocks and of threads, up to three each. An empty grid launches nothing.
        args : sequence
            In the order of the signature; arrays, Python or NumPy scalars, None for a null
            pointer.
        shared : int
            Bytes of dynamic shared memory.
        macros : mapping, optional
        early : bool
            In a graph, and where the launch is replayed, the kernel may begin while the one
            before ends: each of its blocks has to wait for that one before it reads what others
            write.
        together : bool
            Blocks wait for each other, so all of them have to find room on the GPU at once; not
            with ``early``.

        Raises
        ------
        LaunchError, KernelCompileError, DeviceError
        """
        self.variant(macros).launch(grid, block, args, shared, early, together)


class Variant:
    """A kernel with its macros set."""

    def __init__(self, source: Source, entry: str, macros: Mapping[str, Any]) -> None:
        if entry not in source.entries:
            known = ", ".join(sorted(source.entries))
            raise LaunchError(f"{source.name}.cu has no entry point {entry!r}, only {known}")
        self.source, self.entry = source, entry
        self.macros = source.settings(macros)
        self.parameters = source.entries[entry]
        self._types = [(p, source.resolve(p.ctype, self.macros)) for p in self.parameters]
        self._cpu_check = checker(entry, self._types, None)
        self._gpu_check: Check | None = None
        self._count = len(self.parameters)
        self._blocks: set[tuple[tuple[int, ...], int]] = set()  # shapes that passed the check
        # By GPU: CuPy's kernel, its function (which saves a look-up a call), its shared memory.
        self._kernels: dict[int, Any] = {}
        self._functions: dict[int, Any] = {}
        self._shared: dict[int, int] = {}

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        early: bool = False,
        together: bool = False,
    ) -> None:
        """Check the arguments and launch; see `Kernel.launch`."""
        if len(args) != self._count:
            raise self._miscounted(args)
        if _device._emulation_depth and not any(map(_device.is_cupy, args)):
            if _here.launches is not None:
                _here.launches.append(Launched(self, grid, block, args, shared, early, together))
            self._run_on_cpu(grid, block, self._cpu_check(*args), shared)
            return
        ready = (self._gpu_check or self._make_gpu_check())(*args)
        if len(grid) > 3 or not isinstance(block, tuple) or (block, shared) not in self._blocks:
            self._check_shape(grid, block, shared)
            self._blocks.add((tuple(block), shared))
        several = _device.several_gpus()
        device = self._device_of(ready) if several else 0
        if _here.launches is not None:
            one = Launched(self, grid, block, args, shared, early, together, device)
            _here.launches.append(one)
        if min(grid) < 1:
            self._check_shape(grid, block, shared)
            return  # a grid of no blocks
        if not several or device == _device.current_index():
            self._start(device, grid, block, ready, shared, early, together)
        else:
            with _device.using(_device.Device("gpu", device)):
                self._start(device, grid, block, ready, shared, early, together)

    def checked(self, args: Sequence[Any], on_cpu: bool = False) -> Sequence[Any]:
        """Check and cast arguments as a launch does, on a GPU or by the runner on the CPU."""
        check = self._cpu_check if on_cpu else self._gpu_check or self._make_gpu_check()
        return check(*args)

    def prepare(self, device: int) -> None:
        """Load the kernel for a GPU now, as during a capture that may be impossible."""
        if device not in self._functions:
            self._load(device)

    def again(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        words: Sequence[np.ndarray],
        shared: int = 0,
        *,
        early: bool = False,
        together: bool = False,
        device: int | None = None,
    ) -> Callable[[int], driver.Prepared]:
        """Return a function that prepares a launch on a stream, with the contents of `words`.

        The kernel has been launched on the device, by default the current one; `words` are its
        arguments, an array each as `pack` lays it out. The caller answers for what they say, and
        has the device current at each call.
        """
        function = self._functions[_device.current_index() if device is None else device].ptr
        return driver.launcher(function, grid, block, shared, words, early, together)

    def _device_of(self, ready: Sequence[Any]) -> int:
        """Index of the GPU that the arrays are on; without arrays, of the current one."""
        found = device_of(self.entry, self.parameters, ready)
        return _device.current_index() if found is None else found

    def _start(
        self,
        device: int,
        grid: Sequence[int],
        block: Sequence[int],
        ready: Any,
        shared: int,
        early: bool,
        together: bool,
    ) -> None:
        """Launch with checked arguments; the device is the current one."""
        function = self._functions.get(device)
        if function is None:
            function = self._load(device)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s %s: grid %s, block %s", self.entry, self.macros, grid, block)
        try:
            if shared > _USUAL_SHARED and shared > self._shared.get(device, 0):
                self._kernels[device].max_dynamic_shared_size_bytes = shared
                self._shared[device] = shared
            if together or (early and clock.capturing()):
                words = [pack(a) for a in ready]
                given = function.ptr, grid, block, shared, words, early, together
                prepare = driver.launcher(*given)  # it keeps what the launch reads
                driver.start([prepare(_device.current_stream())])
            else:
                function(tuple(grid), tuple(block), ready, shared)
        except Exception as error:  # CuPy raises its own kinds
            self._check_shape(grid, block, shared)
            raise LaunchError(
                f"{self.entry}: grid {tuple(grid)}, block {tuple(block)}, {shared} bytes of "
                f"dynamic shared memory: {error}"
            ) from error

    def _run_on_cpu(
        self, grid: Sequence[int], block: Sequence[int], ready: Sequence[Any], shared: int
    ) -> None:
        self._check_shape(grid, block, shared)
        if _runner is None:
            raise LaunchError(
                "testing.on_cpu() needs a runner, which the tests of a checkout install: "
                "run pytest there, or call testing.set_runner"
            )
        if 0 not in grid:
            _log.debug("%s%s on the CPU: grid %s, block %s", self.entry, self.macros, grid, block)
            _runner(self, tuple(grid), tuple(block), ready, shared)

    def _make_gpu_check(self) -> Check:
        gpu_array = _device.cupy_array_class()
        if gpu_array is None:  # without CuPy no array is on a GPU: say so of the first one
            return checker(self.entry, self._types, type(None))
        self._gpu_check = checker(self.entry, self._types, gpu_array)
        return self._gpu_check

    def _load(self, device: int) -> Any:
        with _lock:
            if device not in self._functions:
                _device.parse_device("gpu")  # raises an error if there is none
                cupy = _device.cupy()
                arch = nvrtc.architecture(cupy.cuda.Device(device).compute_capability)
                self._kernels[device], self._functions[device] = self._function(cupy, arch)
                _log.info("loaded %s%s for %s", self.entry, self.macros or "", arch)
            return self._functions[device]

    def _function(self, cupy: Any, arch: str) -> tuple[Any, Any]:
        data = nvrtc.cubin(self.source, arch, self.macros)
        # RawModule wants a file; the driver has read it when this returns.
        with tempfile.NamedTemporaryFile(prefix="rpukit_", suffix=".cubin") as file:
            file.write(data)
            file.flush()
            module = cupy.RawModule(path=file.name)
            module.compile()
            kernel = module.get_function(self.entry)
            return kernel, kernel.kernel

    def _check_shape(self, grid: Sequence[int], block: Sequence[int], shared: int) -> None:
        fault = fault_of_shape(grid, block, shared)
        if fault:
            raise LaunchError(f"{self.entry}: {fault}")

    def _miscounted(self, args: Sequence[Any]) -> LaunchError:
        names = ", ".join(f"{p.ctype} {'*' * p.pointer}{p.name}" for p in self.parameters)
        return LaunchError(
            f"{self.entry}: got {len(args)} arguments, need {len(self.parameters)}: {names}"
        )


def compile_together(variants: Sequence[Variant], device: _device.Device) -> None:
    """Compile variants into the cache folder, each by a thread of its own."""
    if device.kind != "gpu" or disk.folder() is None:
        return
    arch = nvrtc.architecture(_device.cupy().cuda.Device(device.index).compute_capability)
    with ThreadPoolExecutor(len(variants)) as pool:
        list(pool.map(lambda one: nvrtc.cubin(one.source, arch, one.macros), variants))


def warm_up() -> int:
    """Compile every kernel for the current GPU, into the cache folder; see `rpukit.warm_up`.

    Raises
    ------
    DeviceError, KernelCompileError
    """
    _device.parse_device("gpu")
    arch = nvrtc.architecture(_device.cupy().cuda.Device().compute_capability)
    count = 0
    for name in sources.names():
        text = sources.load(name)
        for macros in text.checks():
            nvrtc.cubin(text, arch, text.settings(macros))
            count += 1
    return count


def describe_cache() -> str:
    """Folder of compiled kernels as text for people, or that the cache is off."""
    place = disk.folder()
    return "off (RPUKIT_CACHE_DIR is empty)" if place is None else str(place)

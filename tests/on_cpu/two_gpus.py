"""Install a stand-in for CuPy with two GPUs, whose kernels the runner takes."""

from __future__ import annotations

import ctypes
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rpukit import _device
from rpukit._kernels import driver, launch, tensor_map
from rpukit._kernels.arguments import checker
from rpukit.analog import deferred_errors
from tests.on_cpu import runner
from tests.on_cpu.fake_cupy import Array, Machine, Misplaced, bare, machine, module, started


class Function:
    """A kernel loaded on one GPU."""

    by_handle: dict[int, Function] = {}  # noqa: RUF012

    def __init__(self, variant: launch.Variant, device: int) -> None:
        self.variant, self.device, self.ptr = variant, device, id(self)
        self.by_handle[self.ptr] = self
        self._reads = _constants(variant)

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], shared: int) -> None:
        here = machine()
        if here.device != self.device:
            raise Misplaced(f"{self.variant.entry} of gpu:{self.device} on gpu:{here.device}")
        pairs = [(a, read) for a, read in zip(args, self._reads, strict=True)
                 if isinstance(a, Array)]  # fmt: skip
        reads, writes = ([a for a, read in pairs if read is kind] for kind in (True, False))
        here.work(self.variant.entry, reads, writes)
        with here.lock:  # the runner takes one launch at a time
            runner.run(self.variant, grid, block, [bare(a) for a in args], shared)


def _constants(variant: launch.Variant) -> list[bool]:
    """Tell which parameters a kernel only reads."""
    text, n = variant.source.text, len(variant.parameters)
    found = re.search(rf"\b{variant.entry}\(([^)]*)\)", text)
    declared = found[1].split(",") if found else []
    plain = len(declared) == n
    return ["const" in d.partition("*")[0] for d in declared] if plain else [False] * n


def _launcher(
    handle: int,
    grid: Any,
    block: Any,
    shared: int,
    words: Any,
    early: bool,
    together: bool = False,
) -> Callable[[int], Callable[[], None]]:
    """Stand in for the driver: addresses alone, so that devices of arrays are not looked at."""
    function = Function.by_handle[handle]
    compiled = getattr(runner.library(function.variant), f"{function.variant.entry}__launch")
    shapes = [(ctypes.c_uint * 3)(*(*map(int, n), 1, 1)[:3]) for n in (grid, block)]
    addresses = (ctypes.c_void_p * len(words))(*(w.ctypes.data for w in words))

    def start(stream: int, kept: Any = (words, addresses)) -> None:
        here = machine()
        if here.device != function.device or stream != here.current[here.device].ptr:
            raise Misplaced(f"replay for gpu:{function.device} on gpu:{here.device}, {stream}")
        here.work(f"replay of {function.variant.entry}", [])
        zero = ctypes.c_uint(0)
        with here.lock:
            assert not compiled(*shapes, ctypes.c_uint(shared), zero, kept[1])

    return lambda stream: partial(start, stream)


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Have CuPy be the stand-in; on a machine with a GPU the tests of those look at all this."""
    if _device.gpu_count():
        pytest.skip("this machine has GPUs: the tests marked multi_gpu use them")
    used: list[launch.Variant] = []

    def check(self: launch.Variant) -> Any:
        used.append(self)
        self._gpu_check = checker(self.entry, self._types, Array)
        return self._gpu_check

    def load(self: launch.Variant, device: int) -> Any:
        self._functions[device] = Function(self, device)
        self._kernels[device] = SimpleNamespace()
        return self._functions[device]

    def encode(
        words: Any,
        address: int,
        rows: int,
        columns: int,
        pitch: int,
        box: tuple[int, int],
        _: bool,
    ) -> None:
        words.view(np.uint64)[:6] = address, columns, rows, pitch, box[1], box[0]

    caches = (
        _device.several_gpus, _device.multiprocessors, _device.shared_limit, tensor_map._describe,
    )  # fmt: skip
    made = module()
    with monkeypatch.context() as patch, started() as here:
        for name in [name for name in sys.modules if name.startswith("cupyx")]:
            patch.delitem(sys.modules, name)  # it would be loaded for the real CuPy
        patch.setitem(sys.modules, "cupy", made)
        patch.setitem(sys.modules, "cupy.cuda", made.cuda)
        patch.setattr(launch.Variant, "_make_gpu_check", check)
        patch.setattr(launch.Variant, "_load", load)
        patch.setattr(driver, "launcher", _launcher)
        patch.setattr(driver, "allocating", nullcontext)
        patch.setattr(driver, "capture_number", lambda stream: 0)
        patch.setattr(tensor_map, "_encode", encode)
        # ``rk.check()`` of a later test does not see tiles that a failure keeps alive.
        patch.setattr(deferred_errors, "_guards", weakref.WeakSet())
        patch.setenv("RPUKIT_TUNE", "0")
        for one in caches:
            one.cache_clear()
        try:
            yield here
        finally:
            for one in caches:
                one.cache_clear()
            for variant in used:
                variant._gpu_check = None
                variant._functions.clear()
                variant._kernels.clear()
                variant._shared.clear()

"""Registration of step functions that are defined outside rpukit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit.errors import DeviceError, DTypeError, ParameterError

__all__ = ["register_step"]

_HEADER = "user_step.cuh"
_STEPS = "rpukit.analog._steps"


@dataclass(frozen=True, slots=True)
class _UserStep:
    cuda: str | None
    has_run: bool
    float64: bool


_registered: dict[str, _UserStep] = {}


def register_step(
    name: str,
    mirror: Callable[..., Any],
    cuda: str | None = None,
    *,
    run: Callable[..., Any] | None = None,
    float64: bool = False,
) -> None:
    """Register the step function of a new device model, for the CPU and for GPUs.

    Parameters
    ----------
    name : str
        The ``STEP`` of the cell class. Registering a name again replaces its functions.
    mirror : callable
        ``mirror(w, p, g, up, xi)``, in the subset of Python that Numba compiles, returns the
        weight after one pulse. It is compiled here unless it already is.
    cuda : str, optional
        CUDA C++ that defines ``__device__ float name(float w, const float *p, const float *g,
        bool up, float xi)`` with the same operations in the same order. Without it the model runs
        on the CPU only: a tile on a GPU is refused.
    run : callable, optional
        ``run(w, p, g, up, n, xi)`` returns whether a run of n equal pulses may be applied at once,
        and the weight after it. The CUDA source then also defines ``__device__ bool
        name_run(float &w, const float *p, const float *g, bool up, int n, float xi)``, and the
        cell class has ``HAS_RUN = True``.
    float64 : bool
        Whether float64 tiles may use it. The CUDA function must then be a template over the type,
        ``template <class T> __device__ T name(T w, const T *p, ...)``, and the mirror must not
        cast to float32.

    Raises
    ------
    ParameterError

    Notes
    -----
    ``p`` holds the planes of the cell, in the order of ``PLANES`` of its class: w_min, w_max,
    step_down, step_up, then its own; ``g`` is what `PulsedCell.globals` gives; ``up`` is the
    direction, ``xi`` a standard normal. All are of the tile's type, float32 unless `float64`
    is set. Both functions keep the weight in its bounds. So that both sides have the same bits,
    keep every operation in float32 (``np.float32(...)`` in the mirror), and take functions from
    ``rk_math.cuh`` and ``rpukit._exact.math``, not from libraries.

    A worked example is in ``CONTRIBUTING.md``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np, rpukit as rk
    >>> def half_step(w, p, g, up, xi):
    ...     half = np.float32(0.5)
    ...     w = np.float32(w + half * p[3]) if up else np.float32(w - half * p[2])
    ...     return p[0] if w < p[0] else p[1] if w > p[1] else w
    >>> cuda = '''
    ... __device__ float half_step(float w, const float *p, const float *g, bool up, float xi) {
    ...     return rk_clip(up ? w + 0.5f * p[3] : w - 0.5f * p[2], p[0], p[1]);
    ... }'''
    >>> rk.register_step("half_step", half_step, cuda)
    >>> @dataclass(frozen=True, slots=True, kw_only=True)
    ... class HalfStep(rk.PulsedCell):
    ...     STEP = "half_step"
    >>> tile = rk.AnalogTile((2, 3), HalfStep(dw_min=0.01), seed=1)
    >>> _ = tile.update(np.ones((1, 3), np.float32), np.ones((1, 2), np.float32), lr=0.05)
    >>> bool((np.asarray(tile) < 0).all())
    True
    """
    steps = twins.mirror(_STEPS, np.float32)
    if not (isinstance(name, str) and name.isidentifier()):
        raise ParameterError(f"name: got {name!r}, need an identifier of both C and Python")
    if name in steps.STEPS and name not in _registered:
        raise ParameterError(f"name: {name!r} is built into rpukit, need another name")
    wanted = [name, f"{name}_run"] if run is not None else [name]
    for function in wanted:
        if cuda is not None and not re.search(rf"\b__device__\b[^;{{]*\b{function}\s*\(", cuda):
            raise ParameterError(
                f"cuda: the source defines no __device__ function {function}(...)"
            )
    compiled = [steps.compiled(function) for function in (mirror, run) if function is not None]
    _registered[name] = _UserStep(cuda, run is not None, bool(float64))
    for kind in (np.float32, np.float64) if float64 else (np.float32,):
        known = twins.mirror(_STEPS, kind)
        known.STEPS[name] = compiled[0]
        known.RUNS.pop(name, None)
        if run is not None:
            known.RUNS[name] = compiled[1]


def check_step(cell: Any, dtype: Any, on_gpu: bool) -> None:
    """Check that a registered step function supports the type and the device of the tile."""
    step = _registered.get(getattr(cell, "STEP", ""))
    if step is not None and not step.float64 and dtype != np.float32:
        raise DTypeError(
            f"dtype: got {dtype}, but the step function {cell.STEP!r} was registered for float32: "
            "make the tile with dtype=numpy.float32, or see float64= of rk.register_step"
        )

    if step is not None and on_gpu:
        _cuda_of(cell.STEP)


def _cuda_of(name: str) -> str:
    """Return the CUDA source of a registered step function, or say that it is missing."""
    cuda = _registered[name].cuda
    if cuda is None:
        raise DeviceError(
            f"the step function {name!r} was registered without CUDA source, so it runs on the "
            "CPU only: give cuda= to rk.register_step, or make the tile with device='cpu'"
        )
    return cuda


class StepKernel(Kernel):
    """A kernel with a macro STEP; registered step functions get sources of their own."""

    def variant(self, macros: Mapping[str, Any] | None = None) -> Any:
        """Return the kernel with these macros set, and with the step function that they name."""
        name = str((macros or {}).get("STEP", ""))
        if name in _registered:
            return _UserVariant(self, name, dict(macros or {}))
        if name and not re.search(rf"\b{name}\s*\(", self.source().text):
            raise ParameterError(
                f"STEP: no step function is called {name!r}: call rk.register_step first"
            )
        return Kernel.variant(self, macros)


class _UserVariant:
    """A kernel with its macros set, and the currently registered step function."""

    def __init__(self, kernel: Kernel, name: str, macros: dict[str, Any]) -> None:
        self._kernel, self._name, self._macros = kernel, name, macros

    def current(self) -> Any:
        """Return the variant of the current source; its name in the cache follows the source."""
        step, kernel = _registered[self._name], self._kernel
        cuda = _cuda_of(self._name)
        has_run = bool(self._macros.get("HAS_RUN", step.has_run))
        if step.has_run != has_run:
            way = "with" if step.has_run else "without"
            raise ParameterError(
                f"HAS_RUN: got {has_run}, but {self._name!r} is registered {way} run="
            )
        own = _kernels.get((kernel.name, cuda))
        if own is None:
            own = Kernel(kernel.name, kernel.entry, headers={_HEADER: cuda + "\n"})
            own = _kernels.setdefault((kernel.name, cuda), own)
        return own.variant(self._macros)

    @property
    def source(self) -> Any:
        return self.current().source

    def launch(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared: int = 0
    ) -> None:
        self.current().launch(grid, block, args, shared)


_kernels: dict[tuple[str, str], Kernel] = {}

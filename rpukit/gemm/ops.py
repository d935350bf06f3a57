"""Products whose bits do not depend on the batch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.errors import DTypeError, ShapeError

Array = Any

_DET_GEMM = Kernel("det_gemm")
_FLOAT = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 16, "RM": 4, "RN": 4}
_DOUBLE = {"TILE_M": 32, "TILE_N": 32, "TILE_K": 16, "RM": 2, "RN": 2}


def det_gemm(
    a: Array, b: Array, *, out: Array | None = None, trans_a: bool = False, trans_b: bool = False
) -> Array:
    """Multiply two matrices, batch-invariantly and deterministically.

    Parameters
    ----------
    a : array, shape (m, k), or (k, m) with `trans_a`, float32 or float64
    b : array, shape (k, n), or (n, k) with `trans_b`, dtype of `a`
    out : array, shape (m, n), dtype of `a`, C-contiguous, optional
        Where the result goes; it may not overlap the inputs.
    trans_a, trans_b : bool
        Multiply by the transpose.

    Returns
    -------
    array, shape (m, n), dtype of `a`

    Raises
    ------
    ShapeError, DTypeError, DeviceError

    Notes
    -----
    Each result is one chain of fused multiply-adds, k ascending, restarted at every multiple of
    16384. So a row of the result depends on that row of `a` alone: its bits are the same in any
    batch, for any tile, on CPU and GPU. Kernel: kernels_cu/det_gemm.cu.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> a = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    >>> b = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
    >>> bool((rk.det_gemm(a, b)[2:3] == rk.det_gemm(a[2:3], b)).all())
    True
    """
    m, n, k = _sizes(a, b, trans_a, trans_b)
    xp = _device.namespace(a, b, out)
    if out is None:
        out = _device.empty((m, n), a.dtype, _device.device_of(a))
    elif out.shape != (m, n) or out.dtype != a.dtype or not out.flags.c_contiguous:
        raise ShapeError(
            f"out: got {out.dtype}{list(out.shape)}, need C-contiguous {a.dtype}{[m, n]}"
        )
    elif np.may_share_memory(out, a) or np.may_share_memory(out, b) if xp is np else False:
        raise ShapeError("out overlaps an input: give an array of its own")
    a, b = xp.ascontiguousarray(a), xp.ascontiguousarray(b)
    if _device.runs_kernels(xp):
        real, tile = ("float", _FLOAT) if a.dtype == np.float32 else ("double", _DOUBLE)
        grid = (-(-n // tile["TILE_N"]), -(-m // tile["TILE_M"]))
        block = (tile["TILE_M"] // tile["RM"] * (tile["TILE_N"] // tile["RN"]),)
        macros = {"TRANS_A": int(trans_a), "TRANS_B": int(trans_b), "REAL": real, **tile}
        _DET_GEMM.launch(grid, block, (m, n, k, a, b, out), macros=macros)
    else:
        left = np.ascontiguousarray(a.T) if trans_a else a
        right = np.ascontiguousarray(b.T) if trans_b else b
        mirror = import_module("rpukit.gemm._mirror").det_gemm
        run_rows(mirror, m, left, right, out, grain=work_grain(n * k))
    return out


def _sizes(a: Array, b: Array, trans_a: bool, trans_b: bool) -> tuple[int, int, int]:
    for name, array in (("a", a), ("b", b)):
        if not (isinstance(array, np.ndarray) or _device.is_cupy(array)):
            raise DTypeError(f"{name}: got {type(array).__name__}, need a NumPy or CuPy array")
        if array.ndim != 2:
            raise ShapeError(f"{name}: got {array.ndim} axes, need 2")
    if a.dtype not in (np.float32, np.float64) or a.dtype != b.dtype:
        raise DTypeError(
            f"got dtypes {a.dtype} and {b.dtype}, need float32 or float64, the same for both"
        )
    m, k = a.shape[::-1] if trans_a else a.shape
    k_b, n = b.shape[::-1] if trans_b else b.shape
    if k != k_b:
        raise ShapeError(f"cannot multiply ({m}, {k}) by ({k_b}, {n}): the inner lengths differ")
    return m, n, k

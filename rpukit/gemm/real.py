"""Products of float32 and float64: one chain of fused multiply-adds a result."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain

Array = Any

_DET_GEMM = Kernel("det_gemm")
_FLOAT = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 16, "RM": 4, "RN": 4}
_DOUBLE = {"TILE_M": 32, "TILE_N": 32, "TILE_K": 16, "RM": 2, "RN": 2}


def product(a: Array, b: Array, out: Array, trans_a: bool, trans_b: bool) -> None:
    """Multiply into `out`, which is C-contiguous; see `rpukit.gemm.det_gemm`."""
    m, n = out.shape
    k = a.shape[0] if trans_a else a.shape[1]
    xp = _device.namespace(a, b, out)
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
        mirror = import_module("rpukit.gemm._mirror.real").det_gemm
        run_rows(mirror, m, left, right, out, grain=work_grain(n * k))

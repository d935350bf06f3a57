"""Compile ahead of the first use: for the CPU by small examples, for a GPU every kernel."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import numpy as np

from rpukit import _device, _kernels


def warm_up() -> int:
    """Compile what is used most for the CPU, and every kernel for the current GPU if there is one.

    All of it goes to the cache folder, and what is there already is not compiled again. On the
    CPU these are products, updates and processes of tiles of float32 with each device model,
    circuits of float32, and `det_gemm`; whatever else is called is compiled at its first call. On
    a GPU each kernel is compiled with its default macros and with those named in its header.

    Returns
    -------
    int
        Number of compiled functions and binaries.

    Raises
    ------
    KernelCompileError

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.warm_up()  # doctest: +SKIP
    32
    """
    for use in (_use_tiles, _use_circuits, _use_products):
        use()
    known = import_module("rpukit._exact.machine_code").known
    count: int = sum(function.n_entries for function in known.values())
    return count + (_kernels.warm_up() if _device.gpu_count() else 0)


def _use_tiles() -> None:
    analog = import_module("rpukit.analog")
    x, d = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    for cell in (analog.Ideal(), *_pulsed_cells()):
        tile = analog.AnalogTile((2, 3), cell, seed=0)
        tile.forward(x)
        tile.backward(d)
        for n in (1, 4):
            tile.update(x[:n], d[:n], lr=0.01)


def _pulsed_cells() -> Iterator[object]:
    cells = import_module("rpukit.analog.cells")
    for name in sorted(cells.__all__):
        kind = getattr(cells, name)
        if issubclass(kind, cells.PulsedCell) and kind is not cells.PulsedCell:
            yield kind()


def _use_circuits() -> None:
    circuits = import_module("rpukit.circuits")
    circuit = circuits.Circuit(circuits.hmm(4, 4, 3), seed=0)
    data = np.zeros((8, 4), np.int32)
    circuit.log_likelihood(data)
    circuit.em_step(data)


def _use_products() -> None:
    det_gemm = import_module("rpukit.gemm").det_gemm
    for dtype in (np.float32, np.float64):
        det_gemm(np.ones((2, 3), dtype), np.ones((3, 2), dtype))

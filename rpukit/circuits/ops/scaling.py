"""Scaling of flows, by which long chains of sums lose nothing to roundings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rpukit import _device
from rpukit._exact.twins import mirror
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.compiled.layout import ProductLayer, SumLayer

__all__ = ["scale_flows", "stretches"]

Array = Any
Layers = Sequence[ProductLayer | SumLayer]

_SCALE_FLOWS = Kernel("scale_flows")
_MOST_ROWS = 65535  # of a grid along y


def stretches(layers: Layers, *, scales: bool) -> Iterator[Layers]:
    """Split layers, from the root down; flows are scaled before each part but the first."""
    first = 0
    for k, layer in enumerate(layers):
        if scales and isinstance(layer, SumLayer) and len(layer.scaled):
            yield layers[first:k]
            first = k
    yield layers[first:]


def scale_flows(scaled: Array, flows: Array) -> None:
    """Scale the flows of vectors that all of the flow goes through: `SumLayer.scaled`."""
    if _device.takes_kernels(flows):
        grid = (len(scaled), min(-(-len(flows) // 8), _MOST_ROWS))
        _SCALE_FLOWS.launch(grid, (256,), (*flows.shape, scaled, flows))
        return
    grain = work_grain(flows.shape[1])
    go = mirror("rpukit.circuits._mirror.scaling", flows.dtype).scale_flows
    run_rows(go, len(flows), scaled, flows, grain=grain)

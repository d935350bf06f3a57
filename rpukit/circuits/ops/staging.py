"""Where exponentials for tensor cores are kept: in scratch of a layer, or for the counts too.

The counts of tied weights take the exponentials of the lifts that `tensor_backward` takes. A pass
over a circuit with ``precision="bf16x3"`` so writes them once, where `tensor_flow` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits.compiled.arena import empty
from rpukit.circuits.compiled.layout import ProductLayer, SumLayer
from rpukit.circuits.compiled.tables import Uses, kept

__all__ = ["StagedLifts", "Staging", "staged_lifts"]

Array = Any
Layers = list[ProductLayer | SumLayer]


@dataclass(frozen=True, slots=True)
class Staging:
    """Words and maxima of the lists of a layer, as kernels of tensor cores find them."""

    words: Array
    top: Array
    line: int  # words from one sample to the next
    apart: int  # words to the low plane
    top_line: int  # maxima from one sample to the next
    top_step: int  # and from one list to the next


@dataclass(frozen=True, slots=True)
class StagedLifts:
    """Exponentials of the lifts of all uses, in the order of `flow_steps`, and their maxima."""

    uses: Uses
    flows: Array  # what they are made of
    up: Array  # (n, 2 n_up)
    top: Array  # (n, n_use)

    def of_layer(self, layer: SumLayer, columns: tuple[Any, ...]) -> tuple[Any, Staging] | None:
        """Lists of `tensor_stage` for the groups of a layer, and where they go; None: not here.

        ``columns``: the lists, which are in scratch otherwise.
        """
        found = _places(layer, self.uses)
        if found is None:
            return None
        at, first, step = found
        n_up, n_use = self.uses.n_up, self.top.shape[1]
        top = self.top.reshape(-1)[first:]
        return (*columns[:2], at, *columns[3:]), Staging(self.up, top, 2 * n_up, n_up, n_use, step)


def staged_lifts(uses: Uses, layers: Layers, flows: Array) -> StagedLifts | None:
    """Allocate exponentials of a pass; None where layers have other groups beside the uses."""
    if not _fits(uses, layers):
        return None
    n, device = len(flows), _device.device_of(flows)
    up = empty((n, 2 * uses.n_up), np.uint16, device)
    top = empty((n, len(uses.row)), np.float32, device)
    return StagedLifts(uses, flows, up, top)


def _places(layer: SumLayer, uses: Uses) -> tuple[Any, ...] | None:
    """Columns of the uses of a layer's groups, the first of these uses, and how far apart."""
    own = uses.tiles.get("host", uses)

    def make(host: SumLayer) -> tuple[Any, ...]:
        used = _uses_of(host, own)
        if used is None or not used.size:
            return (None,)
        step = int(used[1] - used[0]) if used.size > 1 else 1
        return own.up[used].astype(np.int32), int(used[0]), step

    found = kept(layer, ("lifts",), make, layer.group_row)
    return None if found[0] is None else found


def _fits(uses: Uses, layers: Layers) -> bool:
    def make(host: Uses) -> tuple[bool]:
        sums = [y.tiles.get("host", y) for y in layers if isinstance(y, SumLayer)]
        return (all(_uses_of(layer, host) is not None for layer in sums),)

    return bool(kept(uses, ("lifts",), make, uses.row)[0])


def _uses_of(layer: SumLayer, uses: Uses) -> Any:
    """Uses of a layer's groups, equally far apart; empty: none has one; None: anything else."""
    order = np.argsort(uses.row, kind="stable")
    at = np.searchsorted(uses.row, layer.group_row, sorter=order)
    used = order[np.minimum(at, len(order) - 1)]
    found = uses.row[used] == layer.group_row
    if not found.any():
        return used[:0]
    even = len(used) < 3 or len(set(np.diff(used).tolist())) == 1
    return used if found.all() and even else None

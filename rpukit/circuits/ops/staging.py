"""Where exponentials for tensor cores are kept: in scratch of a layer, or for the counts too.

Counts of weights take exponentials of the lifts that `tensor_backward` takes. A pass on tensor
cores so makes them once: with ``precision="bf16x3"`` where `tensor_flow` reads those of tied
weights, with ``"bf16"`` as numbers of float32, which `sum_flow` reads, beside the rounded ones.
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

    words: Array | None  # None: in scratch
    top: Array
    line: int  # words from one sample to the next
    apart: int  # words to the low plane
    top_line: int  # maxima from one sample to the next
    top_step: int  # and from one list to the next
    kept: tuple[Any, ...] = (0, None, None)  # numbers: of a sample, columns of lists, where


@dataclass(frozen=True, slots=True)
class StagedLifts:
    """Exponentials and maxima of the lifts of all uses, laid out as `flow_steps` writes them."""

    uses: Uses
    flows: Array  # what they are made of
    up: Array  # (n, 2 n_up) words, or (n, n_up) numbers
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
        if self.up.dtype != np.uint16:
            return columns, Staging(None, top, 0, 0, n_use, step, (n_up, at, self.up))
        return (*columns[:2], at, *columns[3:]), Staging(self.up, top, 2 * n_up, n_up, n_use, step)


def staged_lifts(uses: Uses, layers: Layers, flows: Array, *, split: bool) -> StagedLifts | None:
    """Allocate the exponentials of a pass; None if only some groups of a layer have uses.

    ``split``: as pairs of words.
    """
    if not _fits(uses, layers):
        return None
    n, device = len(flows), _device.device_of(flows)
    shape, kind = ((n, 2 * uses.n_up), np.uint16) if split else ((n, uses.n_up), np.float32)
    up = empty(shape, kind, device)
    top = empty((n, len(uses.row)), np.float32, device)
    return StagedLifts(uses, flows, up, top)


def _places(layer: SumLayer, uses: Uses) -> tuple[Any, ...] | None:
    """Return the columns of the uses of a layer's groups, the first use, and their spacing."""

    def make(host: Uses) -> tuple[Any, ...]:
        used = _uses_of(layer.tiles.get("host", layer), host)
        if used is None or not used.size:
            return (None,)
        step = int(used[1] - used[0]) if used.size > 1 else 1
        return host.up[used].astype(np.int32), int(used[0]), step

    found = kept(uses, ("lifts", layer.first_row), make, uses.row)
    return None if found[0] is None else found


def _fits(uses: Uses, layers: Layers) -> bool:
    def make(host: Uses) -> tuple[bool]:
        sums = [y.tiles.get("host", y) for y in layers if isinstance(y, SumLayer)]
        return (all(_uses_of(layer, host) is not None for layer in sums),)

    return bool(kept(uses, ("lifts",), make, uses.row)[0])


def _uses_of(layer: SumLayer, uses: Uses) -> Any:
    """Return the uses of a layer's groups, if all groups have one and their spacing is even.

    An empty array if no group has one, None in all other cases.
    """
    order = np.argsort(uses.row, kind="stable")
    at = np.searchsorted(uses.row, layer.group_row, sorter=order)
    used = order[np.minimum(at, len(order) - 1)]
    found = uses.row[used] == layer.group_row
    if not found.any():
        return used[:0]
    even = len(used) < 3 or len(set(np.diff(used).tolist())) == 1
    return used if found.all() and even else None

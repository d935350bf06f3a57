"""Chains of sum layers in one launch, for small batches.

With few samples the overhead of a launch exceeds the time of a layer. Here the blocks of one
launch step through the layers together, see kernels_cu/include/rk_gate.cuh, and keep weights that
are tied over the layers in registers. Where layers are one small vector of sums, a block takes its
samples through all of them and waits for no other. The tuner decides whether that is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel, tune
from rpukit._kernels.launch import recording
from rpukit._kernels.replay import Replay
from rpukit.circuits.compiled.arena import taken_by
from rpukit.circuits.compiled.layout import Layout, ProductLayer, SumLayer
from rpukit.circuits.compiled.tables import element_tiles, kept, node_tiles
from rpukit.circuits.ops.sum_launch import Mixing, dynamic_limit, power, vec

__all__ = [
    "LAYERS",
    "Chained",
    "choose_down",
    "choose_up",
    "flows_down",
    "most_of_chains",
    "values_up",
]

Array = Any
Layers = Sequence[ProductLayer | SumLayer]

_FLOWS_DOWN = Kernel("flows_down")
_VALUES_UP = Kernel("values_up")

_MOST_SAMPLES = 64
_OUTPUTS = 16  # outputs of a block whose weights fit its registers
_ALONE = (32, 64)  # outputs of a block that has a whole layer
_MOST_ALONE = 4096  # samples of such blocks: as many as are on a GPU at once


@dataclass(frozen=True, slots=True)
class Chained:
    """Launch variant of the sum layers of a pass: any batch size, or small batches.

    For small batches blocks step through layers together, or each layer has a launch; or, where
    layers are small, a block steps through them ``alone``, with its own samples.
    """

    shape: Mixing | None = None
    together: bool = True
    alone: bool = False

    @property
    def name(self) -> str:
        """Name of the candidate for the tuner."""
        if self.shape is None:
            return "layers"
        if self.alone:
            return f"blocks of {self.shape.outputs}"
        return f"{'chain' if self.together else 'launches'} of {self.shape.outputs}"

    def valid(self, n_batch: int) -> bool:
        """Whether the variant supports this batch size."""
        return self.shape is None or n_batch <= (_MOST_ALONE if self.alone else _MOST_SAMPLES)

    def parts(self, layers: Layers) -> Iterator[Sequence[Any]]:
        """Split layers into those of one launch each."""
        for sums, part in groupby(layers, key=lambda layer: isinstance(layer, SumLayer)):
            if sums and self.shape is not None:
                yield list(part)
            else:
                yield from ([layer] for layer in part)


LAYERS = Chained()


def choose_up(
    layers: Layers, theta: Array, n_sample: int, run: Callable[..., Any], *given: Any
) -> Chained:
    """Choose the variant of an upward pass; ``run(*given, chained)`` can be called repeatedly."""
    return _choose(_VALUES_UP, layers, theta, n_sample, partial(run, *given))


def choose_down(
    layers: Layers, theta: Array, n_sample: int, run: Callable[..., Any], *given: Any
) -> Chained:
    """Choose the variant of a downward pass; ``run(*given, chained)`` runs it from the start."""
    return _choose(_FLOWS_DOWN, layers, theta, n_sample, partial(run, *given))


def _choose(kernel: Kernel, layers: Layers, theta: Array, n: int, trial: tune.Trial) -> Chained:
    sums = [layer for layer in layers if isinstance(layer, SumLayer)]
    alone = _alone(kernel, sums) if n <= _MOST_ALONE else ()
    if (n > _MOST_SAMPLES and not alone) or len(sums) < 2:
        return LAYERS
    device = _device.device_of(theta)
    widest = max(sums, key=lambda layer: layer.n_weight)
    n_out, n_in = widest.end_row - widest.first_row, widest.most_in
    if kernel is _FLOWS_DOWN:
        n_out, n_in = widest.n_element, widest.most_out
    key = (len(sums), n_out, n_in, sum(layer.n_weight for layer in sums), theta.dtype.name)
    candidates = (*_candidates(n, n_out, n_in, theta.dtype, device), *alone)

    def make_trial() -> tune.Trial:
        ready: dict[str, Callable[[], None]] = {}  # the host would take longer than most passes

        def again(how: Chained) -> Any:
            if how.name in ready:
                ready[how.name]()
                return None
            if device.kind == "cpu":
                return trial(how)
            made, ready[how.name] = _repeated(partial(trial, how))
            return made

        return again

    chosen: Chained = tune.choose(kernel, key, candidates, make_trial, n_batch=n, device=device)
    return chosen


def _repeated(call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
    """Make a call; return its result, and a function that repeats its launches.

    They are replayed as in a pass. A graph would not keep alive what they use.
    """
    with recording() as launches:
        made = call()
    return made, Replay(launches, [])


@cache
def _candidates(
    n_sample: int, n_out: int, n_in: int, dtype: np.dtype[Any], device: _device.Device
) -> tuple[Chained, ...]:
    """Blocks with as few samples as leave no block a second part."""
    samples, most = 1, min(power(n_sample), 16 if dtype.itemsize == 4 else 8)
    n_tile, n_block = -(-n_out // _OUTPUTS), _device.multiprocessors(device)
    while samples < most and n_tile * -(-n_sample // samples) > n_block:
        samples *= 2
    shape = Mixing(_OUTPUTS, min(16, max(8, power(-(-n_in // 64)))), samples)
    if shape.shared(dtype) > dynamic_limit(device):
        return (LAYERS,)
    return LAYERS, Chained(shape, together=False), Chained(shape)


def _alone(kernel: Kernel, sums: Sequence[SumLayer]) -> tuple[Chained, ...]:
    """Blocks that have a whole layer each, if layers are as small as that."""
    tiles_of = element_tiles if kernel is _FLOWS_DOWN else node_tiles
    for size in _ALONE:
        if all(len(tiles_of(layer, size)[0]) == 1 for layer in _hosts(sums)):
            return (Chained(Mixing(size, 1, 1), alone=True),)
    return ()


def values_up(
    run: Sequence[SumLayer],
    theta: Array,
    values: Array,
    shape: Mixing,
    *,
    together: bool,
    alone: bool = False,
) -> None:
    """Run `sum_forward` of all layers of a run, upwards."""
    size = shape.outputs

    def list_rows(_: SumLayer) -> tuple[Array]:
        return (np.concatenate([layer.list_rows for layer in _hosts(run)]),)

    def tiles(_: SumLayer) -> tuple[Any, ...]:
        steps = [len(layer.list_rows) for layer in _hosts(run)]
        return _dealt([_sums(layer, size) for layer in _hosts(run)], {1: steps})

    first, beside = run[0], run[0].group_row
    rows = kept(first, ("rows up", len(run)), list_rows, beside)
    *dealt, counts = kept(first, ("up", len(run), size), tiles, beside)
    args = (*dealt, *rows, theta, values)
    more = {"WIDTH": first.width} | ({"ALONE": 1} if alone else {})
    _launch(_VALUES_UP, shape, together, counts, args, values.shape, theta, more)


def flows_down(
    run: Sequence[SumLayer],
    theta: Array,
    values: Array,
    flows: Array,
    shape: Mixing,
    *,
    together: bool,
    alone: bool = False,
) -> None:
    """Run `sum_backward_joined` of all layers of a run, downwards."""
    size = shape.outputs

    def element_rows(_: SumLayer) -> tuple[Array]:
        return (np.concatenate([layer.element_rows for layer in _hosts(run)]),)

    def tiles(_: SumLayer) -> tuple[Any, ...]:
        tables, parents = zip(*(_elements(layer, size) for layer in _hosts(run)), strict=True)
        steps = {0: [layer.n_element for layer in run], 2: [len(part) for part in parents]}
        *dealt, counts = _dealt(tables, steps)
        return (*dealt, np.concatenate(parents), counts)

    first, beside = run[0], run[0].group_row
    rows = kept(first, ("rows down", len(run)), element_rows, beside)
    *dealt, counts = kept(first, ("down", len(run), size), tiles, beside)
    few = min(vec(layer, theta) for layer in run)
    args = (*dealt, *rows, theta, values, flows)
    more = {"WIDTH": first.width, "VEC": few} | ({"ALONE": 1} if alone else {})
    _launch(_FLOWS_DOWN, shape, together, counts, args, values.shape, theta, more)


def _launch(
    kernel: Kernel,
    shape: Mixing,
    together: bool,
    counts: Sequence[int],
    args: tuple[Any, ...],
    of: tuple[int, int],
    theta: Array,
    more: dict[str, int],
) -> None:
    """Launch once for all layers, or once per layer as a CPU needs, whose blocks cannot wait.

    ``counts``: tiles of each layer; ``of``: samples and rows.
    """
    device = _device.device_of(theta)
    n_across, n_block = -(-of[0] // shape.samples), _device.multiprocessors(device)
    macros, shared = shape.macros(theta.dtype) | more, shape.shared(theta.dtype)
    if "ALONE" in more:
        given, blocks = (*of, 0, len(counts), *args), (shape.threads,)
        kernel.launch((n_across,), blocks, given, shared=shared, macros=macros, early=True)
        return
    spans = [(0, len(counts))]
    if not together or device.kind == "cpu":
        spans = [(k, k + 1) for k in range(len(counts))]
    for first, end in spans:
        most = max(counts[first:end])
        grid = most * n_across
        if together:  # blocks that have the same tile in all of their parts hold its weights
            grid = min(grid, n_block // most * most or n_block)
        several = end - first > 1
        kernel.launch(
            (grid,),
            (shape.threads,),
            (*of, first, end, *args),
            shared=shared,
            macros=macros,
            early=not several,
            together=several,
        )


def most_of_chains(layout: Layout) -> int:
    """Bytes of the tables of this file."""
    sums = [layer for layer in layout.layers if isinstance(layer, SumLayer)]
    if layout.width == 0 or len(sums) < 2:
        return 0
    n_run = 2 + sum(len(layer.scaled) > 0 for layer in sums)  # flows are scaled between
    total, sizes = 0, (_OUTPUTS, *_ALONE[-1:])
    for layer in sums:
        tables = [a for n in sizes for a in (_sums(layer, n), *_elements(layer, n))]
        total += sum(taken_by(a.nbytes) for a in (layer.list_rows, layer.element_rows, *tables))
    return total + len(sizes) * n_run * (taken_by(4) + taken_by(4 * (len(sums) + 1)))


def _hosts(run: Sequence[SumLayer]) -> list[SumLayer]:
    return [layer.tiles.get("host", layer) for layer in run]


def _sums(layer: SumLayer, size: int) -> Array:
    """Tiles of sums as values_up.cu takes them."""
    group, node = (table.astype(np.int64) for table in node_tiles(layer, size))
    of_list, n_node = layer.group_list[group], layer.group_size[group]
    columns = [
        layer.group_theta[group] + node,
        layer.list_first[of_list],
        np.diff(layer.list_first)[of_list],
        n_node,
        layer.group_row[group] + node,
        np.minimum(size, n_node - node),
    ]
    return np.stack([*columns, 0 * node, 0 * node], axis=1)


def _elements(layer: SumLayer, size: int) -> tuple[Array, Array]:
    """Tiles of elements, and the parents of each, as flows_down.cu takes them."""
    first, n = (table.astype(np.int64) for table in element_tiles(layer, size))
    counts = np.diff(layer.parent_first)[first]
    ends = np.cumsum(counts)
    at = np.arange(counts.sum()) + np.repeat(layer.parent_first[first] - (ends - counts), counts)
    group, place = layer.parent_group[at], layer.parent_place[at].astype(np.int64)
    n_node = layer.group_size[group]
    columns = [layer.group_theta[group] + place * n_node, layer.group_row[group], n_node]
    parents = np.stack([*columns, 0 * place], axis=1).astype(np.int64)
    return np.stack([first, n, ends - counts, counts], axis=1), parents


def _dealt(tables: Sequence[Array], steps: dict[int, list[int]]) -> tuple[Any, ...]:
    """Concatenate tiles of layers: the first of each layer, a counter, all tiles; their number.

    ``steps``: by column, what is added for each layer before.
    """
    counts = [len(table) for table in tables]
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    joined = np.concatenate(tables)
    for column, step in steps.items():
        before = np.concatenate([[0], np.cumsum(step)[:-1]])
        joined[:, column] += np.repeat(before, counts)
    return first, np.zeros(1, np.uint32), joined, counts

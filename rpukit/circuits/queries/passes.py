"""Passes over a circuit: upward (values), downward (flows), and into the statistics.

`Propagation` is the usual rule: sums add probabilities. Other rules are in `propagation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import shown
from rpukit.circuits.compiled.arena import empty
from rpukit.circuits.compiled.layout import ProductLayer, SumLayer
from rpukit.circuits.core import Core
from rpukit.circuits.ops import em as steps
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.ops.counts import count_weights, steps_of
from rpukit.circuits.ops.evaluated import leaf_counts, leaf_values
from rpukit.circuits.ops.scaling import scale_flows
from rpukit.circuits.ops.small_batch import (
    LAYERS,
    Chained,
    choose_down,
    choose_up,
    flows_down,
    values_up,
)
from rpukit.circuits.ops.staging import StagedLifts, staged_lifts
from rpukit.circuits.ops.sum_launch import room_for
from rpukit.circuits.ops.sum_tensor_core import tensor_backward, tensor_forward
from rpukit.circuits.parameters import Parameters, Statistics
from rpukit.circuits.partials import BLOCK
from rpukit.circuits.queries.soft_evidence import leaf_soft
from rpukit.errors import DTypeError

__all__ = [
    "Pass",
    "Propagation",
    "as_type",
    "both_ways",
    "gather",
    "gather_block",
    "gather_blocks",
    "propagation_of",
    "run_down",
    "run_inner",
    "run_leaves",
    "run_up",
    "steps_of_pass",
    "store",
    "up",
    "values_of",
]

Array = Any
Steps = Sequence[tuple[Array, Array, Array]]


@dataclass(slots=True)
class Pass:
    """Arrays of one pass over n samples: values, flows, lifts (n, n_row); elements.

    Values, lifts and elements are float64 for every type of weights: the rounding of a logarithm
    grows with it. Flows have the type of the weights.
    """

    codes: Array
    numbers: Array
    values: Array
    elements: Array = None  # flat: of all layers one after the other, or of one at a time
    keeps: bool = False
    flows: Array = None
    lift: Array = None
    weights: Array = None  # flows of the roots (n, n_root)
    out: Array = None  # values of the roots (n, n_root), a copy
    room: Array = None  # scratch of the kernels of a layer
    lifts: StagedLifts | None = None  # exponentials of lifts, which the counts take

    def hold_elements(self, parameters: Parameters, *, keep: bool) -> None:
        """Allocate elements: of all layers with ``keep``."""
        layout, self.keeps = parameters.layout, keep
        size = layout.n_element if keep else _most(layout.layers)
        shape = (len(self.values) * size,)
        self.elements = empty(shape, np.float64, parameters.device)

    def of_layer(self, layer: SumLayer) -> Array:
        """Elements of a layer, (n, n_element)."""
        n = len(self.values)
        first = layer.element_first * n if self.keeps else 0
        return self.elements[first : first + n * layer.n_element].reshape(n, layer.n_element)


def run_up(parameters: Parameters, codes: Array, numbers: Array, *, keep: bool = False) -> Pass:
    """Compute the values of all rows; ``keep`` the elements for a pass down."""
    return run_inner(parameters, run_leaves(parameters, codes, numbers), keep=keep)


def run_leaves(parameters: Parameters, codes: Array, numbers: Array) -> Pass:
    """Compute the values of the rows of leaves."""
    shape = (len(codes), parameters.layout.n_row)
    values = empty(shape, np.float64, parameters.device)
    leaf_values(parameters.rows, codes, numbers, values)
    return Pass(codes, numbers, values)


def run_inner(
    parameters: Parameters, run: Pass, *, keep: bool = False, elements: bool = False
) -> Pass:
    """Compute the values of the rows above those of leaves; with ``elements`` those too."""
    rounded, kernels = parameters.rounded, _device.takes_kernels(run.values)
    joined = _joins(parameters, run) and not elements
    if not joined:
        run.hold_elements(parameters, keep=keep or not kernels)
    if not kernels and rounded is None:
        ops.values_up(parameters.program, parameters.theta, run.values, run.elements)
        return run
    run.room = room_for(parameters.layers, parameters.theta, len(run.values))
    chained = LAYERS
    if joined and rounded is None:
        given = (parameters.layers, parameters.theta, len(run.values))
        chained = choose_up(*given, _up, parameters, run)
    _up(parameters, run, chained)
    return run


def _up(parameters: Parameters, run: Pass, chained: Chained) -> list[Array]:
    """Run the kernels of an upward pass; it can be repeated."""
    theta, rounded, joined = parameters.theta, parameters.rounded, run.elements is None
    for part in chained.parts(parameters.layers):
        layer = part[0]
        if isinstance(layer, ProductLayer):
            ops.product_forward(layer, run.values, run.values)
            continue
        if chained.shape is not None:
            how = {"together": chained.together, "alone": chained.alone}
            values_up(part, theta, run.values, chained.shape, **how)
            continue
        below = None if joined else run.of_layer(layer)
        if not joined:
            ops.product_forward(layer.elements, run.values, below)
        if rounded is not None:
            tensor_forward(layer, rounded, theta, below, run.values, run.room)
        else:
            ops.sum_forward(layer, theta, below, run.values, run.room)
    return [run.values]


def run_down(parameters: Parameters, run: Pass, root_flows: Array) -> Pass:
    """Compute the flows of all rows; ``root_flows`` is (n, n_root)."""
    theta, values = parameters.theta, run.values
    device, rounded = parameters.device, parameters.rounded
    run.flows, run.weights = empty(values.shape, theta.dtype, device), root_flows
    joined = _joins(parameters, run)
    if not joined:
        run.lift = empty(values.shape, np.float64, device)
    if run.out is None:
        run.out = empty(root_flows.shape, theta.dtype, device)
    if not _device.takes_kernels(run.values) and rounded is None:
        _begin_down(parameters, run)
        arrays = (theta, run.values, run.elements, run.flows, run.lift)
        ops.flows_down(parameters.program, *arrays)
        return run
    if joined and rounded is not None:
        split = rounded.split
        for uses in (uses for uses, by_parts in parameters.counted if by_parts == split):
            run.lifts = staged_lifts(uses, parameters.layers, run.flows, split=split)
    chained = LAYERS
    if joined and rounded is None and not parameters.layout.shared:
        given = (parameters.layers, theta, len(values))
        chained = choose_down(*given, _down, parameters, run)
    _down(parameters, run, chained)
    return run


def _begin_down(parameters: Parameters, run: Pass, *, tree: bool = False) -> None:
    roots = (parameters.root_rows, parameters.first_root)
    ops.root_flows(*roots, run.weights, run.values, run.flows, run.out, alone=tree)


def _down(parameters: Parameters, run: Pass, chained: Chained) -> list[Array]:
    """Run the kernels of a downward pass from the roots; it can be repeated."""
    theta, values, rounded = parameters.theta, run.values, parameters.rounded
    joined = _joins(parameters, run)
    # Elements of these layers have flows of their own.
    apart = [
        y for y in parameters.layout.layers if not joined or (isinstance(y, SumLayer) and y.shared)
    ]
    n = len(values) * _most(apart)
    scratch = empty((n,), theta.dtype, parameters.device)
    tree = joined and parameters.layout.tree and chained.shape is None
    _begin_down(parameters, run, tree=tree)
    for part in _parts_down(parameters, run, chained):
        layer = part[0]
        if isinstance(layer, ProductLayer):
            ops.product_backward(layer, run.flows, run.flows)
        elif chained.shape is not None:
            how = {"together": chained.together, "alone": chained.alone}
            flows_down(part, theta, values, run.flows, chained.shape, **how)
        elif joined:
            flows = _part(scratch, len(values), layer) if layer.shared else None
            if rounded is not None:
                joint = (values, None, None, run.flows, flows, run.room)
                tensor_backward(layer, rounded, theta, *joint, tree=tree, lifts=run.lifts)
            else:
                arrays = (values, run.flows, flows, run.room)
                ops.sum_backward_joined(layer, theta, *arrays, tree=tree)
            if flows is not None:
                ops.product_backward(layer.elements, flows, run.flows)
        else:
            ops.sum_lift(values, run.flows, run.lift, (layer.first_row, layer.end_row))
            elements, flows = run.of_layer(layer), _part(scratch, len(values), layer)
            if rounded is not None:
                given = (None, run.lift, elements, None, flows, run.room)
                tensor_backward(layer, rounded, theta, *given)
            else:
                ops.sum_backward(layer, theta, run.lift, elements, flows, run.room)
            ops.product_backward(layer.elements, flows, run.flows)
    return [run.flows]


def _part(scratch: Array, n: int, layer: SumLayer) -> Array:
    """Flows of the elements of a layer, (n, n_element)."""
    return scratch[: n * layer.n_element].reshape(n, layer.n_element)


def _parts_down(parameters: Parameters, run: Pass, chained: Chained) -> Iterator[Sequence[Any]]:
    """Split layers, downwards, into those of one launch each, and scale flows between them."""
    for number, stretch in enumerate(parameters.downward):
        if number:
            scale_flows(stretch[0].scaled, run.flows)  # type: ignore[union-attr]
        yield from chained.parts(stretch)


def gather(parameters: Parameters, run: Pass, statistics: Statistics) -> None:
    """Add the flows of a pass to the statistics."""
    counted = parameters.counted
    made = steps_of(counted, run.lift, run.elements, run.values, run.flows, run.lifts)
    count_weights(statistics, counted, parameters.theta, made)
    leaf_counts(statistics, parameters.rows, run.codes, run.numbers, run.flows)
    if run.out is None:  # of a rule that goes down by itself
        out = run.values.take(parameters.root_rows, axis=1)
        run.out = as_type(out, parameters.theta.dtype)
    steps.count_samples(statistics, run.out, run.weights)
    statistics.n_sample += len(run.values)


def gather_blocks(
    parameters: Parameters,
    run: Pass,
    blocks: Sequence[Sequence[Statistics]],
    ends: tuple[int, ...],
    before: int,
) -> None:
    """Add the flows of a pass to statistics, each of the next 256 samples to its own.

    A block has statistics for each of its pieces, which begin and end at ``ends``; ``before`` is
    the number of samples of the first block that were added already.
    """
    counts = steps_of_pass(parameters, run)
    for k, block in enumerate(blocks):
        gather_block(parameters, run, counts, block, ends, k * BLOCK - before)


def steps_of_pass(parameters: Parameters, run: Pass) -> Steps:
    """Compute the factors of the counts of a pass, for `gather_block`."""
    if run.out is None:  # of a rule that goes down by itself
        out = run.values.take(parameters.root_rows, axis=1)
        run.out = as_type(out, parameters.theta.dtype)
    arrays = (run.lift, run.elements, run.values, run.flows)
    return steps_of(parameters.counted, *arrays, run.lifts)


def gather_block(
    parameters: Parameters,
    run: Pass,
    counts: Steps,
    block: Sequence[Statistics],
    ends: tuple[int, ...],
    first: int,
) -> None:
    """Add the flows of one block of a pass, from its sample ``first`` on; see `gather_blocks`.

    ``first`` is negative if the block began before the pass.
    """
    n = len(run.values)
    for piece, (start, stop) in zip(block, pairwise(ends), strict=True):
        part = slice(max(first + start, 0), min(first + stop, n))
        if part.start >= part.stop:
            continue
        piece.n_sample = part.start - first
        own = [(up[part], child[part], wide[part]) for up, child, wide in counts]
        count_weights(piece, parameters.counted, parameters.theta, own)
        leaves = (run.codes[part], run.numbers[part], run.flows[part])
        leaf_counts(piece, parameters.rows, *leaves)
        steps.count_samples(piece, run.out[part], run.weights[part])


class Propagation:
    """Propagation of values and flows by the usual rule: sums add probabilities.

    Parameters
    ----------
    parameters : Parameters
    """

    exponent = 1.0  # of weights in what is gathered
    apart = False  # whether elements need an array of their own

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    @property
    def usual(self) -> bool:
        """Whether sums add probabilities: then launches may be replayed."""
        return type(self) is Propagation

    def leaves(self, codes: Array, numbers: Array) -> Pass:
        """Compute the values of leaves."""
        return run_leaves(self.parameters, codes, numbers)

    def up(self, run: Pass, *, keep: bool = False) -> Pass:
        """Go up from the values of leaves."""
        return run_inner(self.parameters, run, keep=keep, elements=self.apart)

    def down(self, run: Pass, root_flows: Array) -> Pass:
        """Go down, and leave lifts and elements as `gather` takes them."""
        return run_down(self.parameters, run, root_flows)

    def outputs(self, values: Array) -> Array:
        """Convert values of nodes to those that users see."""
        return values


def propagation_of(parameters: Parameters, rule: Any) -> Propagation:
    """Make the propagation of a `Rule`; the usual one for None."""
    if rule is None:
        return Propagation(parameters)
    make = getattr(rule, "_propagation", None)
    if make is None or isinstance(rule, type):
        raise DTypeError(f"rule: got {shown(rule)}, need a rpukit.circuits.Rule")
    made: Propagation = make(parameters)
    return made


def up(
    core: Core,
    propagation: Propagation,
    evidence: Sequence[Array],
    *,
    keep: bool = False,
) -> Pass:
    """Run a pass up for evidence: codes, numbers and, optionally, soft evidence."""
    codes, numbers, *soft = evidence
    run = propagation.leaves(codes, numbers)
    if soft and soft[0] is not None:
        leaf_soft(core.parameters.rows, run.codes, soft[0], run.values)
    return propagation.up(run, keep=keep)


def both_ways(
    core: Core,
    propagation: Propagation,
    evidence: Sequence[Array],
    weights: Array,
    out: Array = None,
) -> Pass:
    """Run a pass up and down; ``out`` (n, n_root), if given, gets the values of the roots."""
    run = up(core, propagation, evidence, keep=True)
    run.weights, run.out = weights, out
    return propagation.down(run, weights)


def values_of(
    core: Core, propagation: Propagation, codes: Array, numbers: Array, soft: Array = None
) -> Array:
    """Compute the values of all rows, which the next pass may overwrite."""
    memory, n = core.memory, len(codes)

    def call() -> None:
        memory.tops[n] = up(core, propagation, (codes, numbers)).values

    with memory.opened(n, learns=False):
        if soft is not None or not propagation.usual:
            return up(core, propagation, (codes, numbers, soft)).values
        memory.replayed(("up", n), (codes, numbers), {}, call)
    return memory.tops[n] if _device.takes_kernels(codes) else memory.tops.pop(n)


def store(out: Array, values: Array) -> None:
    """Round values to the type of the array they go to; below its range they are -inf."""
    with np.errstate(over="ignore"):
        out[...] = values


def as_type(values: Array, dtype: np.dtype[Any]) -> Array:
    """Round values to the type of a circuit; below its range they are -inf."""
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False)


def _joins(parameters: Parameters, run: Pass) -> bool:
    """Whether kernels compute products themselves, so that elements have no arrays."""
    return (
        parameters.layout.width > 0 and run.elements is None and _device.takes_kernels(run.values)
    )


def _most(layers: list[ProductLayer | SumLayer]) -> int:
    """Number of elements of the widest layer."""
    return max((y.n_element for y in layers if isinstance(y, SumLayer)), default=0)

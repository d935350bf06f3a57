"""A chain of elementwise steps as plain numbers, with its values in numbered places."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import Tensors
from rpukit.tiled.ops.elementwise import AXES, KINDS, Map

INPUTS, CONSTANTS, RESULTS, PLACES = 8, 8, 4, 16
LENGTH = 92  # numbers of the longest chain
_FIRST_CONSTANT, _FIRST_PLACE = INPUTS, INPUTS + CONSTANTS
# A tensor; the axis that each of its dimensions follows; where a part of it begins, () for all
Source = tuple[str, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps of a fused node, in the order of their execution.

    Parameters
    ----------
    sources : tuple of (str, tuple of int, tuple of int)
        Tensors that are read, each with the axis that every dimension follows, -1 for none, and
        with the first index of the part that is read, () for all of it.
    constants : tuple of float
    steps : tuple of int
        For each step: number of the function in `KINDS`, number of operands, value that it makes,
        operands. Values by number: 0 to 7 sources, 8 to 15 constants, 16 to 31 results of steps.
    results : mapping of str to int
        The value of each tensor that is written.
    """

    sources: tuple[Source, ...]
    constants: tuple[float, ...]
    steps: tuple[int, ...]
    results: Mapping[str, int]

    def attributes(self, shape: Sequence[int], ops: str) -> dict[str, Any]:
        """Write the chain as attributes of a node."""
        flat = [(-1,) * (AXES - len(axes)) + axes for _, axes, _ in self.sources]
        starts = [(0,) * (AXES - len(first)) + first for _, _, first in self.sources]
        part = any(first for _, _, first in self.sources)
        parts = {"starts": tuple(n for one in starts for n in one)} if part else {}
        return {
            "ops": ops,
            "shape": tuple(shape),
            "steps": self.steps,
            "constants": self.constants,
            "axes": tuple(n for one in flat for n in one),
            "results": tuple(self.results.values()),
            **parts,
        }


def split(steps: Sequence[int]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Split the numbers of a chain into steps: function, value that it makes, operands."""
    found, at = [], 0
    while at < len(steps):
        count = steps[at + 1]
        found.append((steps[at], steps[at + 2], tuple(steps[at + 3 : at + 3 + count])))
        at += 3 + count
    return found


def trimmed(node: Node, wanted: Collection[str]) -> Node:
    """Remove results of a fused node that nobody wants, and the steps and inputs for them alone.

    Parameters
    ----------
    node : Node
    wanted : collection of str
        At least one of its outputs.

    Returns
    -------
    Node
    """
    a = node.attributes
    kept = [k for k, name in enumerate(node.outputs) if name in wanted]
    need = {a["results"][k] for k in kept}
    steps: list[tuple[int, int, tuple[int, ...]]] = []
    for kind, made, operands in reversed(split(a["steps"])):
        if made in need:
            need = (need - {made}) | set(operands)
            steps.insert(0, (kind, made, operands))
    if len(kept) == len(node.outputs) or not steps:
        return node
    inputs = [k for k in range(len(node.inputs)) if k in need]
    number = {old: new for new, old in enumerate(inputs)}
    results = tuple(a["results"][k] for k in kept)
    flat = (
        n
        for kind, made, operands in steps
        for n in (kind, len(operands), made, *(number.get(v, v) for v in operands))
    )
    attributes = {
        **a,
        "steps": tuple(flat),
        **{
            key: tuple(n for k in inputs for n in a[key][AXES * k : AXES * (k + 1)])
            for key in ("axes", "starts")
            if key in a
        },
        "results": tuple(number.get(v, v) for v in results),
    }
    return replace(
        node,
        inputs=tuple(node.inputs[k] for k in inputs),
        outputs=tuple(node.outputs[k] for k in kept),
        attributes=attributes,
    )


class _Values:
    """Numbers the values of a chain; the place of a result is free after its last reader."""

    def __init__(self, uses: dict[str, int]) -> None:
        self.uses = uses
        self.sources: list[Source] = []
        self.constants: list[float] = []
        self.places: dict[str, int] = {}  # results of steps and what they are copies of
        self.free = list(range(_FIRST_PLACE, _FIRST_PLACE + PLACES))

    def source(self, one: Source) -> int:
        """Number a source."""
        if one not in self.sources:
            self.sources.append(one)
        return self.sources.index(one)

    def constant(self, value: float) -> int:
        """Number a constant; zeros of both signs differ."""
        same = [k for k, known in enumerate(self.constants) if repr(known) == repr(value)]
        if not same:
            self.constants.append(value)
        return _FIRST_CONSTANT + (same[0] if same else len(self.constants) - 1)

    def used(self, name: str) -> None:
        """Count a reader of a result; free its place after the last one."""
        self.uses[name] -= 1
        place = self.places[name]
        if place >= _FIRST_PLACE and not self.uses[name]:
            self.free.append(place)


def chain_of(
    nodes: Sequence[Node],
    tensors: Tensors,
    numbers: Mapping[str, float],
    wanted: Sequence[str],
    op_of: Any,
) -> Chain | None:
    """Number the steps of elementwise nodes that have one shape.

    Parameters
    ----------
    nodes : sequence of Node
        In the order of their execution.
    tensors : mapping of str to Tensor
    numbers : mapping of str to float
        Constants of one element, which become part of the chain.
    wanted : sequence of str
        Tensors that other nodes read.
    op_of : callable
        Function of a node that gives its op.

    Returns
    -------
    Chain or None
        None where the kernel cannot hold so many sources, constants, results or steps.
    """
    made = {node.outputs[0] for node in nodes}
    uses = dict.fromkeys(made, 0)
    for name in [name for node in nodes for name in node.inputs if name in made]:
        uses[name] += 1
    for name in wanted:
        uses[name] += 1  # its place is never free
    values, steps = _Values(uses), list[int]()
    for node in nodes:
        op: Map = op_of(node)
        operands = []
        for place, name in enumerate(node.inputs):
            if name in made:
                operands.append(values.places[name])
            elif name in numbers:
                operands.append(values.constant(numbers[name]))
            else:
                axes = tuple(op.places(node, tensors, place))
                operands.append(values.source((name, axes, op.starts(node, tensors, place))))
        if KINDS[op.kind] == "copy" and operands[0] < _FIRST_PLACE:
            values.places[node.outputs[0]] = operands[0]
            continue
        operands += [values.constant(float(v)) for v in op.constants(node, tensors)]
        for name in (name for name in node.inputs if name in made):
            values.used(name)
        if not values.free:
            return None
        values.free.sort()
        values.places[node.outputs[0]] = values.free.pop(0)
        steps += [op.kind, len(operands), values.places[node.outputs[0]], *operands]
    too_many = len(values.sources) > INPUTS or len(values.constants) > CONSTANTS
    if too_many or len(wanted) > RESULTS or len(steps) > LENGTH or not steps:
        return None
    results = {name: values.places[name] for name in wanted}
    return Chain(tuple(values.sources), tuple(values.constants), tuple(steps), results)

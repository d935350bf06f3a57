"""Rewriting of the nodes of a file, with one error for all that cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rpukit.errors import GraphError
from rpukit.tiled import ops
from rpukit.tiled.graph.rewrites import (
    classical,
    images,
    moves,
    norms,
    pointwise,
    recurrent,
    sums,
)
from rpukit.tiled.graph.rewrites.norms import without_normalisations
from rpukit.tiled.graph.rewrites.reading import UNKNOWN, Reading, Rewrite
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import fault

__all__ = ["REWRITES", "rewritten"]

# What could stand in for operators that cannot be read
_STAND_INS = {
    "ArrayFeatureExtractor": "leave it out: name the outputs that are needed, outputs=[...]",
    "Floor": "leave it outside of the model: it has no gradient",
    "If": "export with fixed shapes, so that the condition is a constant",
    "Loop": "its steps written out",
    "Round": "leave it outside of the model: it has no gradient",
    "Scan": "its steps written out",
    "TopK": "leave it out: name the outputs that are needed, outputs=[...]",
    "ZipMap": "leave it out: name the outputs that are needed, outputs=[...]",
}
REWRITES: Mapping[str, Rewrite] = {
    name: rewrite
    for file in (pointwise, moves, sums, norms, images, recurrent, classical)
    for name, rewrite in file.REWRITES.items()
}
# Ops that pass truth values on
_PASSING = ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand",
            "Slice", "Concat")  # fmt: skip
_ONE_OUTPUT = ("BatchNormalization", "Dropout")  # others are not computed


def rewritten(nodes: Sequence[Node], reading: Reading, extra: Collection[str]) -> list[Node]:
    """Rewrite nodes, then fold normalisations into the products before them.

    Parameters
    ----------
    nodes : sequence of Node
        Sorted.
    reading : Reading
        Gets the constants that are added.
    extra : collection of str
        Ops that are known besides those of `rpukit.tiled.ops`.

    Returns
    -------
    list of Node

    Raises
    ------
    GraphError
        One error with all operators and nodes that cannot be read.
    """
    read = {name for node in nodes for name in node.inputs} | set(reading.outputs)
    made, problems, missing = list[Node](), list[str](), dict[str, list[str]]()
    for node in nodes:
        try:
            lost = [name for name in node.outputs[1:] if name in read]
            if node.op in _ONE_OUTPUT and lost:
                raise fault(node, f"its output {lost[0]} is used, and is not computed")
            parts = REWRITES[node.op](node, reading) if node.op in REWRITES else [node]
        except GraphError as error:
            problems.append(str(error))
            continue
        if node.op in _PASSING and any(name in reading.masks for name in node.inputs):
            reading.masks.update(node.outputs)
        for part in parts:
            if not ops.known(part.op) and part.op not in extra:
                missing.setdefault(part.op, []).append(part.name)
        made += parts
    if missing:  # what follows them has no known shape
        problems = [text for text in problems if UNKNOWN not in text]
    if problems or missing:
        raise GraphError(_refusal(reading.name, missing, problems))
    return without_normalisations(made, reading)


def _refusal(name: str, missing: Mapping[str, Sequence[str]], problems: Sequence[str]) -> str:
    """Write one message with all that cannot be read, and what could stand in."""
    lines = []
    if missing:
        lines.append(f"{name}: unknown ops: {', '.join(sorted(missing))}")
    for op, names in sorted(missing.items()):
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        hint = f"; could stand in: {_STAND_INS[op]}" if op in _STAND_INS else ""
        lines.append(f"{op}: node{'s' * (len(names) > 1)} {shown}{hint}")
    if problems and not missing:
        lines.append(f"{name}: {len(problems)} node{'s' * (len(problems) > 1)} cannot be read")
    return "\n  ".join([*lines, *problems])

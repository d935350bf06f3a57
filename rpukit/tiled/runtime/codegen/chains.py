"""Fused chains in generated C: a loop for each chain, with the functions of elementwise ops."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from rpukit.tiled.ops.pointwise.chain import INPUTS, RESULTS, split

__all__ = ["Key", "chain_loops", "long_rows", "split_chain"]

_STRIDES = 6  # where the strides begin
_END = _STRIDES + 4 * (INPUTS + RESULTS)
_CASE = re.compile(r"    case (\d+): EACH\((.*)\);\n")
_SWITCH = "    switch (n->chain) {\n"
_ROW = "static void fused_row("
Key = tuple[tuple[int, ...], tuple[int, ...]]  # steps, and the values that are stored


def long_rows(ints: Sequence[int]) -> list[int]:
    """Merge the axes of an elementwise tile along which all operands go on at the same pace."""
    sizes, flat = ints[2:6], ints[_STRIDES:]
    strides = [flat[k : k + 4] for k in range(0, len(flat), 4)]
    axes = [[sizes[3], *(own[3] for own in strides)]]  # innermost first: size, and strides
    for axis in (2, 1, 0):
        size, steps = sizes[axis], [own[axis] for own in strides]
        inner = axes[-1]
        if size == 1:
            continue
        if inner[0] == 1:
            axes[-1] = [size, *steps]
        elif steps == [inner[0] * step for step in inner[1:]]:
            inner[0] *= size
        else:
            axes.append([size, *steps])
    axes += [[1] + [0] * len(strides)] * (4 - len(axes))
    axes.reverse()
    rows = math.prod(axis[0] for axis in axes[:3])
    merged = [axis[1 + k] for k in range(len(strides)) for axis in axes]
    return [rows, ints[1], *(axis[0] for axis in axes), *merged]


def split_chain(ints: Sequence[int]) -> tuple[list[int], Key]:
    """Split the numbers of a fused tile into those of its loops and its chain."""
    length, begin = ints[1], _END + RESULTS
    return list(ints[:_END]), (tuple(ints[begin : begin + length]), tuple(ints[_END:begin]))


def chain_loops(source: str, maps: str, chains: Mapping[Key, int]) -> str:
    """Write the kernel of fused chains with a loop for each chain.

    Parameters
    ----------
    source : str
        The kernel without chains.
    maps : str
        The kernel of elementwise ops, whose functions the steps have.
    chains : mapping of (steps, results) to int

    Returns
    -------
    str
    """
    functions = {int(kind): text for kind, text in _CASE.findall(maps)}
    loops = "\n".join("".join(_loop(k, *key, functions)) for key, k in chains.items())
    cases = "".join(f"    case {k}: chain_{k}(n, count, p, q); break;\n" for k in chains.values())
    return source.replace(_ROW, f"{loops}\n{_ROW}").replace(_SWITCH, _SWITCH + cases)


def _loop(
    number: int, steps: tuple[int, ...], results: tuple[int, ...], functions: Mapping[int, str]
) -> Iterator[str]:
    """Write the loop of a chain; values are called v0 (inputs), v8 (constants), v16 (results)."""
    parts = split(steps)
    stored = [k for k, value in enumerate(results) if value >= 0]
    read = {v for _, _, operands in parts for v in operands} | {results[k] for k in stored}
    inputs = sorted(v for v in read if v < INPUTS)
    constants = sorted(v for v in read if INPUTS <= v < 2 * INPUTS)
    made = sorted({value for _, value, _ in parts})
    yield f"static void chain_{number}(const tiled_fused_t *n, int32_t count, "
    yield "const float *const *p, float *const *q) {\n"
    for v in constants:
        yield f"    const float v{v} = n->constant[{v - INPUTS}];\n"
    for v in inputs:
        yield f"    const float *p{v} = p[{v}];\n"
        yield f"    const int32_t s{v} = n->stride[{4 * v + 3}];\n"
    for k in stored:
        yield f"    float *q{k} = q[{k}];\n"
        yield f"    const int32_t t{k} = n->stride[{4 * (INPUTS + k) + 3}];\n"
    yield "    for (int32_t i = 0; i < count; i++) {\n"
    for v in inputs:
        yield f"        const float v{v} = p{v}[i * s{v}];\n"
    yield f"        float {', '.join(f'v{v}' for v in made)};\n"
    for kind, value, operands in parts:
        yield f"        v{value} = {_expression(functions[kind], operands)};\n"
    for k in stored:
        yield f"        q{k}[i * t{k}] = v{results[k]};\n"
    yield "    }\n}\n"


def _expression(text: str, operands: Sequence[int]) -> str:
    """Write a function of its operands: inputs u, v and MORE(k), then constants by and to."""
    n = 1 + max([0, *(int(k) for k in re.findall(r"MORE\((\d)\)", text))])
    n = max(n, 2) if re.search(r"\bv\b", text) else n
    named = {f"MORE({k})": operands[k] for k in range(2, n)}
    named |= dict(zip(("u", "v")[:n], operands, strict=False))
    named |= dict(zip(("by", "to"), operands[n:], strict=False))
    return re.sub(r"MORE\(\d\)|\b(?:u|v|by|to)\b", lambda found: f"v{named[found[0]]}", text)

"""Launches that several objects make alike, as one launch with a block of z for each object.

The kernel of such a launch is made from the source of the original one: its entry point becomes a
function, and the new entry point calls it with the arguments of object ``blockIdx.z``, which are
words of a table. So each object gets the bits of its own launch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.arguments import TENSOR_MAP, pack
from rpukit._kernels.launch import Launched, Variant
from rpukit._kernels.source import ENTRY, Parameter, Source

Array = Any
Places = Mapping[str, Sequence[tuple[Array, int]]]

_WORD = """
template <class T>
__device__ __forceinline__ T rk_word_of(unsigned long long word) {
    union { unsigned long long word; T value; } both;
    both.word = word;
    return both.value;
}
"""
_variants: dict[tuple[Variant, tuple[str, ...]], Variant] = {}


def alike(launches: Sequence[Sequence[Launched]]) -> bool:
    """Whether several objects made the same launches, which can be batched."""
    first = launches[0]
    return all(
        len(own) == len(first) and all(_key(a) == _key(b) for a, b in zip(own, first, strict=True))
        for own in launches
    ) and not any(_refused(one) for one in first)


def _key(one: Launched) -> tuple[Any, ...]:
    return one.variant, tuple(one.grid), tuple(one.block), one.shared, one.early, one.device


def _refused(one: Launched) -> bool:
    by_value = any(p.ctype == TENSOR_MAP for p in one.parameters)
    return one.together or by_value or len(one.grid) > 2 or min(one.grid) < 1


@dataclass(frozen=True, slots=True)
class _Merged:
    """One launch for all objects."""

    variant: Variant
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    early: bool
    table: Array
    given: tuple[tuple[str, str], ...]  # "number" or "array", and its name


class Batched:
    """Launches of several objects, repeated as one launch each.

    Parameters
    ----------
    launches : sequence of sequences of Launched
        Of each object; they are `alike`.
    numbers : sequence of str
        Parameters that are given at each call, the same for all objects.
    places : mapping of str to sequence of (array, int)
        Arrays that are given at each call: for each object, the one of its launches, and its place
        in the given one in bytes.
    device : Device
    """

    def __init__(
        self,
        launches: Sequence[Sequence[Launched]],
        numbers: Sequence[str],
        places: Places,
        device: _device.Device,
    ) -> None:
        self._kept: list[Any] = []  # what kernels read or write at fixed addresses
        self._merged = [
            self._merge(ones, numbers, places, device) for ones in zip(*launches, strict=True)
        ]

    def _merge(
        self,
        ones: Sequence[Launched],
        numbers: Sequence[str],
        places: Places,
        device: _device.Device,
    ) -> _Merged:
        first = ones[0]
        ready = [one.variant.checked(one.args, first.device is None) for one in ones]
        table = np.zeros((len(ones), len(first.parameters)), np.uint64)
        given: list[tuple[str, str]] = []
        names: list[str] = []
        for j, parameter in enumerate(first.parameters):
            column = [args[j] for args in ready]
            source = ("number", parameter.name) if parameter.name in numbers else None
            if parameter.pointer:
                found = [_placed(a, i, places) for i, a in enumerate(column)]
                (place,) = {name for name, _ in found}  # the same for all
                source = ("array", place) if place else None
                table[:, j] = [at for _, at in found]
                self._kept += [] if place else [a for a in column if a is not None]
            elif source is None:
                table[:, j] = [_word(a) for a in column]
            if source is not None:
                given.append(source)
                names.append(parameter.name)
        variant = _batched(first.variant, tuple(names))
        if device.kind == "gpu":
            variant.prepare(device.index)
        return _Merged(
            variant,
            (*(*first.grid, 1)[:2], len(ones)),
            tuple(first.block),
            first.shared,
            first.early,
            _device.to_device(table, device),
            tuple(given),
        )

    def __call__(self, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Launch with these numbers and arrays, by name."""
        for one in self._merged:
            given = [(numbers if kind == "number" else arrays)[name] for kind, name in one.given]
            args = (one.table, *given)
            one.variant.launch(one.grid, one.block, args, one.shared, one.early)


def _placed(a: Array, i: int, places: Places) -> tuple[str, int]:
    """Return the name of the given array that an argument is in, and its place there in bytes.

    Without a name: the address of the argument.
    """
    if a is None:
        return "", 0
    address = _address(a)
    for name, of in places.items():
        whole, offset = of[i]
        inside = address - _address(whole)
        if 0 <= inside < whole.nbytes:
            return name, offset + inside
    return "", address


def _address(a: Array) -> int:
    return int(a.data.ptr if _device.is_cupy(a) else a.ctypes.data)


def _word(a: Any) -> int:
    """Lay out a number as the first bytes of a word."""
    raw = pack(a).tobytes()
    return int.from_bytes(raw.ljust(8, b"\0"), "little")


def _batched(variant: Variant, names: tuple[str, ...]) -> Variant:
    """Return the batched form of a variant, to which the parameters of these names are given."""
    key = variant, names
    if key not in _variants:
        source = batched_source(variant.source, variant.entry, names)
        _variants[key] = Variant(source, variant.entry, variant.macros)
    return _variants[key]


def batched_source(source: Source, entry: str, names: Sequence[str]) -> Source:
    """Return a source whose entry point runs that of another one for many objects.

    Parameters
    ----------
    source : Source
    entry : str
    names : sequence of str
        Parameters that stay parameters: numbers as they are, arrays as those in which the arrays
        of the objects are.

    Returns
    -------
    Source
        The entry point takes a table, shape (n_object, n_parameter), of words: numbers, addresses,
        or places in the given arrays; then the parameters of `names` in their order.
    """
    (match,) = (m for m in ENTRY.finditer(source.text) if m.group(1) == entry)
    start, end = match.start(2) - match.start(), match.end(2) - match.start()
    head, parameters = match.group(0), source.entries[entry]
    texts = [" ".join(part.split()) for part in head[start:end].split(",")]
    kinds = [re.sub(r"\s*\w+$", "", text) for text in texts]
    arguments = []
    for j, (p, kind) in enumerate(zip(parameters, kinds, strict=True)):
        if p.name not in names:
            arguments.append(f"rk_word_of<{kind}>(own[{j}])")
        elif p.pointer:
            arguments.append(f"({kind})((const char *){p.name} + own[{j}])")
        else:
            arguments.append(p.name)
    taken = [(p, text) for p, text in zip(parameters, texts, strict=True) if p.name in names]
    signature = ", ".join(("const unsigned long long *table", *(text for _, text in taken)))
    body = f"__device__ __forceinline__ void {entry}_of_one({head[start:end]})"
    text = (
        f"{source.text[: match.start()]}{body}{source.text[match.end() :]}\n{_WORD}"
        f"{head[:start]}{signature}) {{\n"
        f"    const unsigned long long *own = table + {len(texts)} * (size_t)blockIdx.z;\n"
        f"    {entry}_of_one({', '.join(arguments)});\n}}\n"
    )
    entries = {entry: (Parameter("table", "unsigned long long", True), *(p for p, _ in taken))}
    return replace(source, text=text, entries=entries)

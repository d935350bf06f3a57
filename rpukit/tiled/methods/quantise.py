"""Quantised weights and activations in the forward pass, with gradients straight through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit._checks import OneOf, shown, takes
from rpukit.errors import ParameterError
from rpukit.tiled.graph.builder import Builder
from rpukit.tiled.ir import Node
from rpukit.tiled.methods._rewrite import PRODUCTS, Rewriter, short_constant
from rpukit.tiled.methods._select import matching

__all__ = ["quantise"]

FORMATS = ("int8", "int4", "fp16", "bf16", "none")
_LEVELS = {"int8": 127, "int4": 7}
_MANTISSA = {"fp16": 11, "bf16": 8}  # bits, the leading one included
_LARGEST = 65504.0  # of fp16


@takes(weights=OneOf(FORMATS), activations=OneOf(FORMATS))
def quantise(
    builder: Builder,
    batches: Sequence[Sequence[Any]],
    *,
    weights: str = "int8",
    activations: str = "int8",
    per_channel: bool = True,
    learn_scales: bool = False,
    only: Sequence[str] = ("*",),
    stored: bool = False,
) -> Builder:
    """Round the factors of products to few bits in the forward pass; parameters stay as they are.

    Parameters
    ----------
    builder : Builder
        It is not changed.
    batches : sequence of tuple of arrays
        Mini-batches, with all inputs in their order, that scales of activations come from.
    weights, activations : {"int8", "int4", "fp16", "bf16", "none"}
        How the factors of Gemm, MatMul and Conv are rounded: constants and parameters, and what
        depends on the data.
    per_channel : bool
        Weights have a scale for each output channel, not one alone.
    learn_scales : bool
        Scales are parameters too, which begin with the values that are fixed otherwise.
    only : sequence of str
        Patterns of the names of products: those of the other products stay as they are.
    stored : bool
        Rounded factors are tensors of int8 or float16, which `store_narrow` keeps for the backward
        pass. Constants, such as the frozen weights of `add_lora`, are int8 or float16 from the
        beginning. Not with int4, bf16 or scales that are learned.

    Returns
    -------
    Builder
        With the given names, and the parameters ``w/scale`` if scales are learned.

    Raises
    ------
    ParameterError, ShapeError, DTypeError

    Notes
    -----
    int8 is ``s round(clip(x / s))`` with integers from -127 to 127 and ties to even; s is the
    largest absolute value over 127. Gradients pass where x / s is within 127.4, and a scale that
    is learned has the gradient of LSQ (Esser et al., ICLR 2020). fp16 and bf16 round to 11 and 8
    bits, with gradients straight through; fp16 clips at 65504 and has no subnormal numbers.

    All of it consists of elementwise ops that every executor has, float32 in memory: accuracy is
    that of the small format, memory and cycles are not. With ``stored=True`` they are: s is then
    the largest absolute value over 126, and gradients pass where the integer is within 126.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> b = rk.tiled.Builder("line")
    >>> x, y = b.input("x", (1, 2)), b.input("y", (1, 1))
    >>> h = b.apply("Gemm", x, b.parameter("w", [[0.11], [-1.27]]), name="h")
    >>> loss = b.apply("MSELoss", h, y)
    >>> batch = np.array([[1.27, 0.5]], np.float32), np.zeros((1, 1), np.float32)
    >>> small = rk.tiled.methods.quantise(b, [batch])
    >>> small.graph("w/int8").run({"w": np.float32([[0.114], [-1.27]])})["w/int8"].ravel().round(3)
    array([ 0.11, -1.27], dtype=float32)
    """
    if stored:
        _check_stored((weights, activations), learn_scales, builder._sketch.dtype)
    products = [node for node in builder._sketch.nodes if node.op in PRODUCTS]
    names = matching(list(only), [node.name for node in products], "only")
    quantiser = _Quantiser(builder, (weights, activations), per_channel, learn_scales, stored)
    return quantiser.run({node.name: node for node in products if node.name in names}, batches)


def _check_stored(formats: tuple[str, str], learn_scales: bool, dtype: str) -> None:
    for name, style in zip(("weights", "activations"), formats, strict=True):
        if style not in ("int8", "fp16", "none"):
            raise ParameterError(
                f"{name}: got {style!r}, need 'int8', 'fp16' or 'none' with stored=True"
            )
    if learn_scales:
        raise ParameterError("learn_scales: got True, need False with stored=True")
    if dtype != "float32":
        raise ParameterError(f"stored: got True for a builder of {dtype}, need float32")


class _Quantiser:
    def __init__(
        self,
        builder: Builder,
        formats: tuple[str, str],
        per_channel: bool,
        learn: bool,
        stored: bool,
    ) -> None:
        self.builder, self.rewriter = builder, Rewriter(builder)
        self.formats, self.per_channel, self.learn = formats, per_channel, learn
        self.stored = stored
        self.made = self.rewriter.made
        self.values = self.rewriter.values
        bits = np.finfo(self.made._sketch.dtype).nmant + 1
        self.bits, self.magic = bits, 1.5 * 2.0 ** (bits - 1)  # adding it rounds to integers
        self.named: dict[tuple[str, int], str] = {}

    def run(self, products: dict[str, Node], batches: Sequence[Sequence[Any]]) -> Builder:
        moving = [
            name
            for node in products.values()
            for name in node.inputs[:2]
            if name not in self.values
        ]
        most = self.largest(dict.fromkeys(moving), batches) if self.formats[1] in _LEVELS else {}
        for node in self.rewriter.sketch.nodes:
            named = {}
            for place, name in enumerate(node.inputs[:2] if node.name in products else ()):
                named[name] = self.rounded(node, place, name, most)
            self.rewriter.copy(node, named)
        return self.made

    def largest(
        self, names: dict[str, None], batches: Sequence[Sequence[Any]]
    ) -> dict[str, float]:
        """Find the largest absolute values of activations."""
        if not isinstance(batches, (list, tuple)) or not batches:
            raise ParameterError(f"batches: got {shown(batches)}, need at least one mini-batch")
        inputs = self.builder._inputs
        made = [name for name in names if name not in inputs]
        graph = self.builder.graph(*made) if made else None
        found = dict.fromkeys(names, 0.0)
        for batch in batches:
            if not isinstance(batch, (list, tuple)) or len(batch) != len(inputs):
                raise ParameterError(f"batches: need tuples of {', '.join(inputs)}")
            given = dict(zip(inputs, batch, strict=True))
            every = {**self.builder._parameters, **self.builder._kept, **given}
            done = graph.run({name: every[name] for name in graph.inputs}) if graph else {}
            for name in names:
                value = np.abs(np.asarray({**given, **done}[name], np.float64)).max(initial=0.0)
                if not np.isfinite(value):
                    raise ParameterError(f"batches: {name} is {value}, need finite numbers")
                found[name] = max(found[name], float(value))
        return found

    def rounded(self, node: Node, place: int, name: str, most: dict[str, float]) -> str:
        """Name the rounded form of a factor, which is made at its first use."""
        fixed = name in self.values
        style = self.formats[0] if fixed else self.formats[1]
        axis = self.channels(node, place, name) if fixed and self.per_channel else -1
        if style == "none":
            return name
        axis = axis if style in _LEVELS else -1
        if (name, axis) not in self.named:
            suffix = "" if not any(key[0] == name for key in self.named) else f"/{axis}"
            if style in _MANTISSA:
                made = self.half(name) if self.stored else self.shorter(name, style)
            else:
                made = self.integers(name, style, suffix, self.scale(name, axis, style, most))
            self.named[name, axis] = made
        return self.named[name, axis]

    def channels(self, node: Node, place: int, name: str) -> int:
        """Find the axis of a weight's output channels; -1 for one scale."""
        rank = len(self.rewriter.shape(name))
        if node.op == "Conv":
            return 0
        if rank != 2:
            return -1
        turned = node.attributes.get("transB" if place else "transA", 0)
        return int(not turned) if place else int(bool(turned))

    def scale(self, name: str, axis: int, style: str, most: dict[str, float]) -> np.ndarray:
        """Compute the scale of a factor, or those of its channels."""
        rank = len(self.rewriter.shape(name))
        if name not in self.values:
            top = np.full((1,) * rank, most[name])
        else:
            value = np.abs(np.asarray(self.values[name], np.float64))
            axes = tuple(k for k in range(rank) if k != axis)
            top = value.max(axes, keepdims=True, initial=0.0)
        levels = _LEVELS[style] - self.stored  # the last integer is for what is beyond them
        scale: np.ndarray = np.where(top > 0, top, 1.0) / levels
        return scale

    def integers(self, name: str, style: str, suffix: str, scale: np.ndarray) -> str:
        made, levels = self.made, _LEVELS[style]
        label = f"{name}/scale{suffix}"
        if self.learn:  # a learning rate of LSQ, 1 / sqrt(n levels) of the others
            n = int(np.prod(self.rewriter.shape(name))) / scale.size
            factor = float((n * levels) ** -0.25)
            own = made.parameter(label, scale / factor)
            step = made.apply("Mul", own, self.rewriter.number(factor), name=f"{label}/step")
        else:
            step = made.constant(label, scale)
        if self.stored:
            whole = self.narrow(f"{name}/stored{suffix}", name, step, to=style)
            return made.apply("Dequantize", whole, step, of=style, name=f"{name}/{style}{suffix}")
        part = made.apply("Div", name, step, name=f"{name}/units{suffix}")
        bound = levels + 0.4375  # rounds to the last integer
        part = made.apply("Clip", part, min=-bound, max=bound)
        magic = self.rewriter.number(self.magic)
        part = made.apply("Sub", made.apply("Add", part, magic), magic)
        return made.apply("Mul", part, step, name=f"{name}/{style}{suffix}")

    def narrow(self, label: str, *inputs: str, to: str) -> str:
        """Round to 8 or 16 bits: a constant once and for all, else in every step."""
        made, known = self.made._sketch, self.made._sketch.constants
        if inputs[0] not in known:
            return self.made.apply("Quantize", *inputs, to=to, name=label)
        value = short_constant([known[name] for name in inputs], to)
        made.constants[made.tensor(label, value.shape, to)] = value
        return label

    def half(self, name: str) -> str:
        """Round to float16, in 16 bits."""
        short = self.narrow(f"{name}/stored", name, to="float16")
        return self.made.apply("Dequantize", short, of="float16", name=f"{name}/fp16")

    def shorter(self, name: str, style: str) -> str:
        """Round to fewer bits: the high part of a split by Veltkamp."""
        made, source = self.made, name
        if style == "fp16":
            source = made.apply("Clip", name, min=-_LARGEST, max=_LARGEST)
        splitter = self.rewriter.number(2.0 ** (self.bits - _MANTISSA[style]) + 1)
        wide = made.apply("Mul", source, splitter)
        high = made.apply("Sub", wide, made.apply("Sub", wide, source))
        change = made.apply("StopGradient", made.apply("Sub", high, source))
        return made.apply("Add", source, change, name=f"{name}/{style}")

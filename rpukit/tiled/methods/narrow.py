"""Storage of 8 and 16 bits for what the backward pass needs of the forward pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rpukit._checks import OneOf, takes
from rpukit.tiled import ops
from rpukit.tiled.graph.make import with_nodes
from rpukit.tiled.ir import Node, Training
from rpukit.tiled.methods._rewrite import short_constant
from rpukit.tiled.methods._select import forward_nodes, live_nodes

__all__ = ["store_narrow"]

_LEAST = 256  # elements; smaller tensors, such as statistics of rows, stay as they are


@takes(others=OneOf(("float32", "fp16")))
def store_narrow(training: Training, *, others: str = "float32") -> Training:
    """Store what the backward pass reads of the forward pass in 8 or 16 bits where it can be.

    Parameters
    ----------
    training : Training
        Before `rpukit.tiled.fuse`. It is not changed.
    others : {"float32", "fp16"}
        How results of 256 elements or more are stored that have no small format of their own.

    Returns
    -------
    Training
        Factors of products that `quantise` has rounded with ``stored=True`` are kept as int8 or
        float16, and widened again right before the backward pass reads them; constants among
        them, such as frozen weights, are int8 or float16 from the beginning. Of the result of a
        Relu whose sign alone is needed, a byte is kept for each element, or nothing at all where
        its integers are: then gradients pass where these are positive.

    Raises
    ------
    GraphError

    Notes
    -----
    With ``others="float32"`` losses and gradients have the bits of the given training, but for two
    gradients that follow integers: that of a positive number that rounds to 0 is 0, and that of a
    MaxPool goes to the first of the largest integers. With "fp16" the forward pass and the loss
    keep their bits, and gradients are computed from rounded values.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> b = rk.tiled.Builder("deep")
    >>> x, y = b.input("x", (64, 16)), b.input("y", (64, 16))
    >>> h = x
    >>> for k in range(6):
    ...     h = b.apply("Relu", b.apply("Gemm", h, b.parameter(f"w{k}", np.eye(16))))
    >>> training = b.training(b.apply("MSELoss", h, y))
    >>> less = rk.tiled.methods.store_narrow(training, others="fp16")
    >>> levels = rk.tiled.siracusa_l2()
    >>> [rk.tiled.plan(one, levels, buffering="double").peaks["L2"] for one in (training, less)]
    [49168, 38928]
    """
    return _Narrow(training).rewritten(others == "fp16")


class _Narrow:
    """The forward and the backward part of a training graph, and what passes between them."""

    def __init__(self, training: Training) -> None:
        self.training, self.graph = training, training.train
        own = {node.name for node in forward_nodes(training)}
        self.more: dict[str, np.ndarray] = {}  # further constants
        nodes = [node for node in self.graph.nodes if node.name in own]
        self.forward = [node for node in nodes if not self.is_constant(node)]
        self.late = [node for node in self.graph.nodes if node.name not in own]
        self.makers = {name: node for node in self.graph.nodes for name in node.outputs if name}
        self.made = {name for node in self.forward for name in node.outputs if name}
        self.stored: dict[str, Node] = {}  # further nodes of the forward pass, by what they read
        self.again: dict[str, Node] = {}  # how a result of the forward pass is made again
        self.copies: dict[str, str] = {}  # names of what was made again, and of its views

    def rewritten(self, halves: bool) -> Training:
        """Make the graph."""
        readers = self.readers()
        self.late = [self.masked(node, readers) for node in self.late]
        for name in self.readers():
            if self.makers[name].op == "Dequantize":
                self.again[name] = self.makers[name]
            elif halves and name not in self.stored and self.may_be_rounded(name):
                place, attributes = f"{name}/float16", {"to": "float16"}
                self.stored[name] = Node(place, "Quantize", (name,), (place,), attributes)
                wide = {"of": "float16"}
                self.again[name] = Node(name, "Dequantize", (place,), (name,), wide)
        nodes: list[Node] = []
        for node in self.forward:
            more = (self.stored[name] for name in node.outputs if name in self.stored)
            nodes += [node, *more]
        for node in self.late:
            inputs = node.inputs
            if not ops.find(node.op).view:
                inputs = tuple(self.widened(name, nodes) for name in inputs)
            nodes.append(replace(node, inputs=inputs))
        nodes = live_nodes(nodes, self.graph.outputs)
        return replace(self.training, train=with_nodes(self.graph, nodes, self.more))

    def is_constant(self, node: Node) -> bool:
        """Round a constant once and for all, if that is what a node does."""
        known = self.graph.constants
        if node.op != "Quantize" or not all(name in known for name in node.inputs):
            return False
        values = [known[name] for name in node.inputs]
        self.more[node.outputs[0]] = short_constant(values, node.attributes.get("to", "int8"))
        return True

    def root(self, name: str) -> str:
        return self.graph.aliases.get(name, name)

    def readers(self) -> dict[str, list[Node]]:
        """Map results of the forward pass to the nodes of the backward pass that read them."""
        found: dict[str, list[Node]] = {}
        for node in self.late:
            for name in node.inputs if not ops.find(node.op).view else ():
                if self.root(name) in self.made:
                    found.setdefault(self.root(name), []).append(node)
        return found

    def masked(self, node: Node, readers: dict[str, list[Node]]) -> Node:
        """Replace the gradient of a Relu, if nothing else reads the result, by one of a byte."""
        if node.op != "ReluGrad" or node.inputs[1] not in readers:
            return node
        slope, result = node.inputs
        own = readers[result]
        if self.graph.tensors[result].dtype != "float32" or any(
            n.op not in ("ReluGrad", "MaxPoolGrad") or n.inputs[1] != result for n in own
        ):
            return node
        integers, high, before = self.rounded(result), 128, self.makers.get(slope)
        if before is not None and before.op == "QuantizeGrad" and before.inputs[1] == integers:
            slope, high = before.inputs[0], 127  # both at once
        integers = integers or self.pooled(result)
        if not integers and all(n.op == "ReluGrad" for n in own):
            integers, high = f"{result}/positive", 2
            self.stored[result] = Node(integers, "Positive", (result,), (integers,))
        if not integers:
            return node
        limits = {"low": 0, "high": high}
        return replace(node, op="QuantizeGrad", inputs=(slope, integers), attributes=limits)

    def rounded(self, name: str) -> str:
        """Name the integers, in units of positive constants, that a tensor is rounded to."""
        for node in self.forward:
            if node.op == "Quantize" and node.inputs[0] == name and len(node.inputs) > 1:
                scale = self.graph.constants.get(node.inputs[1])
                if scale is not None and (scale > 0).all():
                    return node.outputs[0]
        return ""

    def pooled(self, name: str) -> str:
        """Store the input of a MaxPool as the integers that its result is rounded to."""
        pools = [n for n in self.forward if n.op == "MaxPool" and n.inputs[0] == name]
        ends = {n.outputs[0] for n in pools}
        for end in self.made:
            integers = self.rounded(end) if self.root(end) in ends else ""
            maker = self.makers.get(integers)
            if maker is None or self.graph.tensors[maker.inputs[1]].size > 1:
                continue
            place, rank = f"{name}/int8", len(self.graph.tensors[name].shape)
            scale = self.scale(maker.inputs[1], rank)
            self.stored[name] = Node(place, "Quantize", (name, scale), (place,))
            self.again[name] = Node(name, "Dequantize", (place, scale), (name,))
            return place
        return ""

    def scale(self, name: str, rank: int) -> str:
        """Name a scale of one element with so many axes."""
        value = self.graph.constants[name]
        if value.ndim == rank:
            return name
        self.more[f"{name}/{rank}"] = value.reshape((1,) * rank)
        return f"{name}/{rank}"

    def may_be_rounded(self, name: str) -> bool:
        """Tell whether a result is one of many floats, and nothing but a result of its op."""
        tensor, maker = self.graph.tensors[name], self.makers[name]
        ends = {self.root(end) for end in self.graph.outputs}
        large = tensor.dtype == "float32" and tensor.size >= _LEAST
        return large and name not in ends and not ops.find(maker.op).aliases(maker)

    def widened(self, name: str, nodes: list[Node]) -> str:
        """Name what a node of the backward pass reads, which is made right before if need be."""
        if self.root(name) not in self.again:
            return name
        if name not in self.copies:
            maker = self.again.get(name, self.makers.get(name))
            assert maker is not None
            inputs = maker.inputs
            if name not in self.again:  # a view
                inputs = (self.widened(inputs[0], nodes), *inputs[1:])
            self.copies[name] = f"{name}/widened"
            outputs = (self.copies[name],)
            nodes.append(
                replace(maker, name=f"{maker.name}/widened", inputs=inputs, outputs=outputs)
            )
        return self.copies[name]

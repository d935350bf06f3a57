"""Losses of labels, with weights of classes and labels to ignore."""

from __future__ import annotations

from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.ops._base import (
    REALS,
    Numbers,
    Tensors,
    Tiled,
    attribute,
    extents,
    fault,
    numbers,
    present,
)
from rpukit.tiled.tile_space import Axis, Box, Cut, Operand, TileSpace, Whole


class LabelWeights(Tiled):
    """Weight of each sample: that of its class, 0 where the label is to be ignored."""

    kernel, module, buffers = "tiled_label_weights", "reductions", 3

    def __init__(self) -> None:
        super().__init__("LabelWeights", (1, 2))

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        labels, n_class = tensors[node.inputs[0]], attribute(node, "n_class", 0)
        weights = present(node.inputs, 1)
        real = tensors[weights].dtype if weights else attribute(node, "dtype", "float32")
        if len(labels.shape) != 1 or labels.dtype != "int64":
            raise fault(node, f"got labels of {labels.dtype} {labels.shape}, need [N] of int64")
        if weights and (tensors[weights].shape != (n_class,) or real not in REALS):
            raise fault(
                node,
                f"got weights {tensors[weights]}, need one float for each of {n_class} classes",
            )
        return [Tensor(node.outputs[0], labels.shape, real)]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        operands = [Operand(node.inputs[0], "in", (Cut(0),), 0)]
        if present(node.inputs, 1):
            operands.append(Operand(node.inputs[1], "in", (Whole(node.attributes["n_class"]),), 1))
        operands.append(Operand(node.outputs[0], "out", (Cut(0),), 2))
        return TileSpace((Axis("n", tensors[node.inputs[0]].size),), tuple(operands))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        ignored = attribute(node, "ignore_index", None)
        ints = [*extents(box), node.attributes["n_class"], bool(present(node.inputs, 1))]
        ints += [ignored is not None, ignored or 0]
        return numbers(ints, (), tensors[node.outputs[0]].dtype)


class _Labelled(Tiled):
    """Op of log-probabilities, labels and, if wanted, weights of samples and their total."""

    module, buffers = "reductions", 5

    def __init__(self, name: str) -> None:
        super().__init__(name, (2, 4))

    def check_inputs(self, node: Node, tensors: Tensors) -> Tensor:
        """Check scores (N, C), labels (N,), weights (N,) and total (); return the scores."""
        scores, labels = (tensors[name] for name in node.inputs[:2])
        if len(scores.shape) != 2 or scores.dtype not in REALS or labels.dtype != "int64":
            raise fault(
                node,
                f"got {scores.dtype} {scores.shape} and {labels.dtype}, need [N, C] and int64",
            )
        if labels.shape != scores.shape[:1]:
            raise fault(node, f"got labels of shape {labels.shape}, need {scores.shape[:1]}")
        for name, shape in zip(node.inputs[2:], (labels.shape, ()), strict=False):
            if tensors[name].shape != shape or tensors[name].dtype != scores.dtype:
                raise fault(node, f"{name}: got shape {tensors[name].shape}, need {shape}")
        if attribute(node, "reduction", "mean") not in ("mean", "sum"):
            raise fault(node, f"reduction: got {node.attributes['reduction']!r}, need mean or sum")
        return scores

    def weights(self, node: Node) -> list[Operand]:
        """Operands of the weights of samples and of their total, where they are given."""
        spans = ((Cut(0),), ())
        return [
            Operand(name, "in", span, 3 + place)
            for place, (name, span) in enumerate(zip(node.inputs[2:], spans, strict=False))
        ]

    def given(self, node: Node) -> list[bool]:
        """Whether there are weights, and a total."""
        return [len(node.inputs) > 2, len(node.inputs) > 3]

    def divisor(self, node: Node, tensors: Tensors) -> int:
        """Return the number of samples for a mean, else 1."""
        mean = attribute(node, "reduction", "mean") == "mean"
        return tensors[node.inputs[0]].shape[0] if mean else 1


class NegativeLogLikelihood(_Labelled):
    """Sum or mean over the batch of minus the log-probability of the label."""

    kernel = "tiled_nll"

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        return [Tensor(node.outputs[0], (), self.check_inputs(node, tensors).dtype)]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        n, c = tensors[node.inputs[0]].shape
        operands = (
            Operand(node.inputs[0], "in", (Cut(0), Whole(c)), 0),
            Operand(node.inputs[1], "in", (Cut(0),), 1),
            *self.weights(node),
            Operand(node.outputs[0], "out", (), 2),
        )
        return TileSpace((Axis("n", n, "reduce"),), operands)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space = self.space(node, tensors)
        c = tensors[node.inputs[0]].shape[1]
        ints = [1, *extents(box), c, space.first(box), space.last(box), *self.given(node)]
        return numbers(ints, [self.divisor(node, tensors)], tensors[node.outputs[0]].dtype)


class LossGrad(_Labelled):
    """Gradient of scores, weight (exp(log_prob) - onehot) / total, or of log-probabilities.

    Parameters
    ----------
    name : str
    of_log_prob : bool
        The gradient of the log-probabilities, -weight onehot / total.
    """

    kernel = "tiled_cross_entropy_grad"

    def __init__(self, name: str, of_log_prob: bool) -> None:
        super().__init__(name)
        self._of_log_prob = of_log_prob

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        logprob = self.check_inputs(node, tensors)
        return [Tensor(node.outputs[0], logprob.shape, logprob.dtype)]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        n, c = tensors[node.inputs[0]].shape
        operands = (
            Operand(node.inputs[0], "in", (Cut(0), Cut(1)), 0),
            Operand(node.inputs[1], "in", (Cut(0),), 1),
            *self.weights(node),
            Operand(node.outputs[0], "out", (Cut(0), Cut(1)), 2),
        )
        return TileSpace((Axis("n", n), Axis("c", c)), operands)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        c = tensors[node.inputs[0]].shape[1]
        ints = [*extents(box), box[1][0], c, *self.given(node), self._of_log_prob]
        return numbers(ints, [self.divisor(node, tensors)], tensors[node.outputs[0]].dtype)


OPS = [
    LabelWeights(),
    NegativeLogLikelihood("NLLLoss"),
    LossGrad("CrossEntropyGrad", of_log_prob=False),
    LossGrad("NLLLossGrad", of_log_prob=True),
]

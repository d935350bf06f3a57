"""Low-rank adapters of the products of a network."""

from __future__ import annotations

import numpy as np

from rpukit._checks import Maybe, Real, Whole, takes
from rpukit.errors import ParameterError
from rpukit.tiled.graph.builder import Builder
from rpukit.tiled.ir import Node
from rpukit.tiled.methods._rewrite import Rewriter
from rpukit.tiled.methods._select import matching

__all__ = ["add_lora"]


@takes(rank=Whole(1), alpha=Maybe(Real(0)), seed=Whole(0))
def add_lora(
    builder: Builder, *patterns: str, rank: int, alpha: float | None = None, seed: int = 0
) -> Builder:
    """Freeze the weights of products, and add two small factors to each: LoRA.

    Parameters
    ----------
    builder : Builder
        It is not changed.
    *patterns : str
        Names of weights of Gemm and MatMul, or patterns.
    rank : int
        Columns of the first factor, rows of the second.
    alpha : float, optional
        The product of the factors is multiplied by ``alpha / rank``; default: `rank`.
    seed : int
        Of the first factors, normal with variance 1 / (number of inputs). The second are 0, so
        that training begins with the outputs of the given network.

    Returns
    -------
    Builder
        Where a weight w has become a constant, with the parameters ``w/lora_a`` and ``w/lora_b``;
        y = x w becomes y = (alpha / rank) (x a) b + x w. Other parameters are still trained:
        `freeze` their training as well to train the factors alone.

    Raises
    ------
    ParameterError
        If a pattern matches nothing, or a weight is read by anything but a Gemm or MatMul of two
        axes of weights, without an activation.

    Notes
    -----
    Source: Hu et al., LoRA: low-rank adaptation of large language models, 2021.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> b = rk.tiled.Builder("line")
    >>> x, y = b.input("x", (8, 64)), b.input("y", (8, 64))
    >>> h = b.apply("Gemm", x, b.parameter("w", np.eye(64)), transB=1)
    >>> loss = b.apply("MSELoss", h, y)
    >>> small = rk.tiled.methods.add_lora(b, "w", rank=2)
    >>> b.training(loss), small.training(loss)
    (Training('line', 5 nodes, 4096 parameters), Training('line', 10 nodes, 256 parameters))
    """
    names = matching(patterns, list(builder._parameters), "patterns")
    rewriter = Rewriter(builder, names)
    rng = np.random.default_rng(seed)
    scale = (rank if alpha is None else alpha) / rank
    factors: dict[str, tuple[str, str, int]] = {}
    for name in names:
        readers = [node for node in rewriter.sketch.nodes if name in node.inputs]
        turned = _turned(name, readers, rewriter.shape(name))
        n_out, n_in = rewriter.shape(name)[:: 1 if turned else -1]
        a, b = rng.normal(size=(rank, n_in)) / np.sqrt(n_in), np.zeros((n_out, rank))
        first = rewriter.made.parameter(f"{name}/lora_a", a if turned else a.T)
        second = rewriter.made.parameter(f"{name}/lora_b", b if turned else b.T)
        factors[name] = first, second, turned
    for node in rewriter.sketch.nodes:
        found = factors.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if found is None:
            rewriter.copy(node, {})
            continue
        first, second, turned = found
        base, low = f"{node.outputs[0]}/base", f"{node.outputs[0]}/low"
        rewriter.copy(node, {}, base)
        apply = rewriter.made.apply
        low = apply("Gemm", node.inputs[0], first, transB=turned, name=low)
        rewriter.made._sketch.append(
            Node(
                f"{node.name}/lora",
                "Gemm",
                (low, second, base),
                node.outputs,
                {"transB": turned, "alpha": scale},
            )
        )
    return rewriter.made


def _turned(name: str, readers: list[Node], shape: tuple[int, ...]) -> int:
    """Check that a weight may get factors; tell whether it is transposed."""
    for node in readers:
        plain = node.op in ("Gemm", "MatMul") and node.inputs[1] == name and len(shape) == 2
        if not plain or node.attributes.get("transA") or node.attributes.get("activation"):
            raise ParameterError(
                f"patterns: {name} is read by {node.op} {node.name}; need a weight of two axes, "
                "the second factor of a Gemm or MatMul without transA and activation"
            )
    turned = {int(bool(node.attributes.get("transB", 0))) for node in readers}
    if len(turned) != 1:
        raise ParameterError(f"patterns: {name} is read both as it is and transposed, or not read")
    return turned.pop()

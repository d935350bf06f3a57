"""Fusion passes: updates into gradient products, Relu into products."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from rpukit._checks import takes
from rpukit.errors import GraphError
from rpukit.tiled.graph.make import Graph, make_graph, with_nodes
from rpukit.tiled.ir import Node, Tensor, Training

__all__ = ["fuse_activations", "fuse_updates"]


@takes()
def fuse_activations(training: Training) -> Training:
    """Fuse each Relu into the product before it, so that only its result is stored.

    Parameters
    ----------
    training : Training

    Returns
    -------
    Training
        Where a Gemm or MatMul is read by one Relu, and otherwise by gradients of Relu only, it
        has ``activation="Relu"``. These gradients take the result of the Relu, which is positive
        where its input is. Losses, gradients, parameters and state have the bits of the given
        training.

    Examples
    --------
    >>> import rpukit as rk
    >>> b = rk.tiled.Builder("line")
    >>> x, y, w = b.input("x", (1, 4)), b.input("y", (1, 2)), b.parameter("w", [[0.0] * 2] * 4)
    >>> h = b.apply("Relu", b.apply("Gemm", x, w))
    >>> training = rk.tiled.fuse_activations(b.training(b.apply("MSELoss", h, y)))
    >>> [node.op for node in training.train.nodes]
    ['Gemm', 'MSELoss', 'MSELossGrad', 'ReluGrad', 'Gemm', 'InPlaceAccumulatorV2']
    >>> training.train.nodes[0].attributes["activation"]
    'Relu'
    """
    train, readers = training.train, defaultdict(list)
    for node in train.nodes:
        for name in node.inputs:
            readers[name].append(node)
    named: dict[str, str] = {}  # results of products, and of their Relu
    for node in train.nodes:
        value = node.outputs[0]
        found = [one for one in readers[value] if one.op == "Relu"]
        slopes = [one for one in readers[value] if one.inputs[0] != value]
        if (
            node.op in ("Gemm", "MatMul")
            and not node.attributes.get("activation")
            and value not in train.outputs
            and len(found) == 1
            and len(found) + len(slopes) == len(readers[value])
            and all(one.op == "ReluGrad" for one in slopes)
        ):
            named[value] = found[0].outputs[0]
    nodes = []
    for node in train.nodes:
        if node.op == "Relu" and node.inputs[0] in named:
            continue
        reads = tuple(named.get(name, name) for name in node.inputs)
        makes = tuple(named.get(name, name) for name in node.outputs)
        more = {"activation": "Relu"} if node.outputs[0] in named else {}
        nodes.append(Node(node.name, node.op, reads, makes, {**node.attributes, **more}))
    return replace(training, train=with_nodes(train, nodes))


@takes()
def fuse_updates(training: Training) -> Training:
    """Update each parameter as soon as its gradient is available, without accumulators.

    Training with an update after every mini-batch needs no accumulators: the gradients are not
    written out and read again, and parameters that are needed for the backward pass are changed
    while they are still in fast memory. Where plain SGD follows a product, the product adds to the
    parameters itself, tile by tile, and the gradient is never stored (unless the mini-batch is so
    large that its rows outweigh the parameters).

    Parameters
    ----------
    training : Training

    Returns
    -------
    Training
        With one graph that does the whole step, and an empty one; `accumulators` is empty. Losses,
        parameters and state have the bits of the given training with ``n_accumulate=1``.

    Raises
    ------
    GraphError
        If an accumulator is read by any node but its update.

    Examples
    --------
    >>> import rpukit as rk
    >>> b = rk.tiled.Builder("line")
    >>> x, y, w = b.input("x", (1, 4)), b.input("y", (1, 2)), b.parameter("w", [[0.0] * 2] * 4)
    >>> loss = b.apply("MSELoss", b.apply("Gemm", x, w), y)
    >>> training = rk.tiled.fuse_updates(b.training(loss))
    >>> [node.op for node in training.train.nodes]
    ['Gemm', 'MSELoss', 'MSELossGrad', 'GemmUpdate']
    >>> training.accumulators, training.optimiser.nodes
    ((), ())
    """
    train, update = training.train, training.optimiser
    totals, adders = set(training.accumulators), _adders(training)
    slopes = {node.inputs[0]: node.inputs[1] for node in adders}
    ends = {name for node in adders for name in node.outputs}
    named = _names(training) | slopes
    nodes = [node for node in train.nodes if node not in adders]
    taken = {node.name for node in nodes}
    for node in update.nodes:
        name = node.name if node.name not in taken else f"{update.name}/{node.name}"
        reads = tuple(named.get(key, key) for key in node.inputs)
        makes = tuple(named.get(key, key) for key in node.outputs)
        nodes.append(Node(name, node.op, reads, makes, node.attributes))
    nodes = _in_products(nodes, train.tensors, train.outputs)
    gone = totals | {training.reset}
    inputs = [train.tensors[name] for name in train.inputs if name not in gone]
    inputs += [update.tensors[name] for name in training.state]
    outputs = [name for name in train.outputs if name not in ends]
    outputs += [named.get(name, name) for name in update.outputs]
    constants = {named.get(key, key): value for key, value in update.constants.items()}
    whole = make_graph(train.name, nodes, inputs, outputs, {**constants, **train.constants})
    empty = Graph(update.name, (), {}, (), ())
    return replace(training, train=whole, optimiser=empty, accumulators=())


def _in_products(
    nodes: list[Node], tensors: Mapping[str, Tensor], wanted: Collection[str]
) -> list[Node]:
    """Fuse plain SGD with the product that computes its gradient, if it is the only reader.

    This applies only where the factors are no larger than the parameters: larger ones would be
    read for each strip of these, while a product that is cut along its sum reads them once.
    """
    readers = Counter(name for node in nodes for name in node.inputs)
    makers = {
        node.outputs[0]: node
        for node in nodes
        if node.op == "Gemm"
        and len([name for name in node.inputs if name]) == 2
        and node.attributes.get("alpha", 1.0) == 1.0
        and not node.attributes.get("activation")
        and len(tensors[node.outputs[0]].shape) == 2
        and readers[node.outputs[0]] == 1
        and node.outputs[0] not in wanted
        and sum(tensors[name].size for name in node.inputs) <= tensors[node.outputs[0]].size
    }
    done, gone = [], set()
    for node in nodes:
        maker = makers.get(node.inputs[1]) if node.op == "SGD" else None
        if maker is None:
            done.append(node)
            continue
        keys = ("transA", "transB")
        attributes = {key: maker.attributes.get(key, 0) for key in keys}
        attributes["alpha"] = -node.attributes.get("lr", 0.001)
        inputs = (*maker.inputs[:2], node.inputs[0])
        done.append(Node(node.name, "GemmUpdate", inputs, node.outputs, attributes))
        gone.add(maker.name)
    return [node for node in done if node.name not in gone]


def _adders(training: Training) -> list[Node]:
    """Find the nodes that add to accumulators, which nothing else in their graph may read."""
    train, totals = training.train, set(training.accumulators)
    adders = [node for node in train.nodes if node.inputs and node.inputs[0] in totals]
    made = totals.union(*(node.outputs for node in adders))
    readers = [n.name for n in train.nodes if n not in adders and made.intersection(n.inputs)]
    missing = sorted(totals.difference(node.inputs[0] for node in adders))
    if readers or missing:
        raise GraphError(
            f"{train.name}: {', '.join(readers or missing)}: need accumulators that gradients are "
            "added to, and that only their updates read"
        )
    return adders


def _names(training: Training) -> dict[str, str]:
    """Rename tensors of the update alone whose names the training graph uses too."""
    update = training.optimiser
    shared = {*training.parameters, *training.accumulators, *training.state}
    own = set(update.tensors) - shared
    return {name: f"{update.name}/{name}" for name in own & set(training.train.tensors)}

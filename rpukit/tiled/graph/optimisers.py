"""Graphs of optimiser steps: SGD, SGD with momentum, Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rpukit.errors import ParameterError
from rpukit.tiled.graph.make import Graph, make_graph
from rpukit.tiled.ir import Node, Tensor

__all__ = ["SGD", "Adam", "MomentumSGD", "Optimiser"]


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value < high:
        raise ParameterError(f"{name}: got {value!r}, need a number in [{low}, {high})")


@dataclass(frozen=True, slots=True)
class SGD:
    """Stochastic gradient descent: ``w -= lr g``, g the sum over the accumulated mini-batches.

    Parameters
    ----------
    lr : float

    Raises
    ------
    ParameterError
    """

    lr: float = 0.01

    def __post_init__(self) -> None:
        _within("lr", self.lr, 0, np.inf)


@dataclass(frozen=True, slots=True)
class MomentumSGD:
    """Stochastic gradient descent with momentum: ``m = momentum m + g``, ``w -= lr m``.

    Parameters
    ----------
    lr, momentum : float

    Raises
    ------
    ParameterError
    """

    lr: float = 0.01
    momentum: float = 0.9

    def __post_init__(self) -> None:
        _within("lr", self.lr, 0, np.inf)
        _within("momentum", self.momentum, 0, 1)


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam: momentum, divided by the root of the running mean square of gradients.

    Parameters
    ----------
    lr, beta1, beta2, epsilon : float

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Kingma and Ba, ICLR 2015, algorithm 1.
    """

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        _within("lr", self.lr, 0, np.inf)
        _within("beta1", self.beta1, 0, 1)
        _within("beta2", self.beta2, 0, 1)
        _within("epsilon", self.epsilon, 0, np.inf)


Optimiser = SGD | MomentumSGD | Adam


def optimiser_graph(
    optimiser: Optimiser,
    tensors: Mapping[str, Tensor],
    pairs: Sequence[tuple[str, str]],
    name: str,
) -> tuple[Graph, dict[str, np.ndarray]]:
    """Make the graph of an optimiser's step.

    Parameters
    ----------
    optimiser : SGD, MomentumSGD or Adam
    tensors : mapping of str to Tensor
    pairs : sequence of (str, str)
        Parameters and their accumulators.
    name : str

    Returns
    -------
    graph : Graph
    state : dict of str to array
        Initial values of the optimiser's state.
    """
    state: dict[str, np.ndarray] = {}
    nodes: list[Node] = []
    ends: list[str] = []
    adam = isinstance(optimiser, Adam)
    extras = ("m", "v") if adam else ("m",) if isinstance(optimiser, MomentumSGD) else ()
    attributes = {key: getattr(optimiser, key) for key in optimiser.__dataclass_fields__}
    if adam and pairs:
        real = tensors[pairs[0][0]].dtype
        state["adam_powers"] = np.ones(2, real)
        ends.append("adam_powers_updated")
        nodes.append(Node("adam_powers", "AdamPowers", ("adam_powers",), (ends[0],), attributes))
    for weight, gradient in pairs:
        tensor = tensors[weight]
        kept = tuple(f"{weight}_{extra}" for extra in extras)
        state.update((key, np.zeros(tensor.shape, tensor.dtype)) for key in kept)
        outputs = tuple(f"{key}_updated" for key in (weight, *kept))
        inputs = (weight, gradient, *kept, *ends[: 1 if adam else 0])
        node = Node(f"update_{weight}", type(optimiser).__name__, inputs, outputs, attributes)
        nodes.append(node)
        ends += outputs
    given = [tensors[key] for pair in pairs for key in pair]
    given += [Tensor(key, value.shape, value.dtype.name) for key, value in state.items()]
    return make_graph(name, nodes, given, ends), state

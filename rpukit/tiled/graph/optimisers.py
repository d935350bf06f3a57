"""Graphs of optimiser steps: SGD, SGD with momentum, Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rpukit._checks import Checked, Kind, Real
from rpukit.tiled.graph.make import Graph, make_graph
from rpukit.tiled.ir import Node, Tensor

__all__ = ["SGD", "Adam", "MomentumSGD", "Optimiser"]


_SHARE = Real(0, float(np.nextafter(1, 0)))  # below 1


@dataclass(frozen=True, slots=True)
class SGD(Checked):
    """Stochastic gradient descent: ``w -= lr g``, g the sum over the accumulated mini-batches.

    Parameters
    ----------
    lr : float

    Raises
    ------
    ParameterError
    """

    KINDS: ClassVar[dict[str, Kind]] = {"lr": Real(0)}

    lr: float = 0.01


@dataclass(frozen=True, slots=True)
class MomentumSGD(Checked):
    """Stochastic gradient descent with momentum: ``m = momentum m + g``, ``w -= lr m``.

    Parameters
    ----------
    lr, momentum : float

    Raises
    ------
    ParameterError
    """

    KINDS: ClassVar[dict[str, Kind]] = {"lr": Real(0), "momentum": _SHARE}

    lr: float = 0.01
    momentum: float = 0.9


@dataclass(frozen=True, slots=True)
class Adam(Checked):
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

    KINDS: ClassVar[dict[str, Kind]] = {
        **dict.fromkeys(("lr", "epsilon"), Real(0)),
        **dict.fromkeys(("beta1", "beta2"), _SHARE),
    }

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


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

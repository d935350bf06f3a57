"""Ready-made structures: mixtures, hidden Markov models, random tensorised ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit._checks import Whole, integer, need_nodes, shown, takes
from rpukit.circuits.graph.leaves import Categorical, Leaf
from rpukit.circuits.graph.nodes import (
    InputNodes,
    Nodes,
    SumNodes,
    inputs,
    product,
    sum,
)
from rpukit.errors import ParameterError

__all__ = ["hmm", "mixture", "rat_spn"]


def _block_of(n: int) -> int:
    """Largest power of two that divides n, at most 1024."""
    return min(n & -n, 1024)


def _leaf_of(leaf: Leaf | Sequence[Leaf], var: int) -> Leaf:
    """Select the leaf of one variable."""
    own = _selected(leaf, var)
    if own.n_columns > 1:
        raise ParameterError(
            f"leaf: got {own} of {own.n_columns} variables, need one of a single variable: take "
            "mixture, hmm, or node vectors"
        )
    return own


def _selected(leaf: Leaf | Sequence[Leaf], var: int) -> Leaf:
    if isinstance(leaf, Leaf):
        return leaf
    if not isinstance(leaf, Sequence) or var >= len(leaf):
        given = f"{len(leaf)} leaves" if isinstance(leaf, Sequence) else shown(leaf)
        raise ParameterError(f"leaf: got {given}, need a Leaf, or one for each variable")
    return leaf[var]


@takes(n_variables=Whole(1), n_components=Whole(1))
def mixture(n_variables: int, n_components: int, leaf: Leaf | Sequence[Leaf]) -> SumNodes:
    """Make a mixture of distributions whose variables are independent.

    Parameters
    ----------
    n_variables, n_components : int
    leaf : Leaf or sequence of Leaf
        One for all variables, or one each. A `MultivariateNormal` is about as many variables as it
        has, one after another: of all of them it makes a mixture with full covariances.

    Returns
    -------
    SumNodes

    Raises
    ------
    ParameterError, DTypeError

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.mixture(5, 3, rk.circuits.Bernoulli()).parameter_shape
    (3, 1, 1)
    """
    need_nodes(n_variables, "mixture")
    parts: list[Nodes] = []
    var = 0
    while var < n_variables:
        own = _selected(leaf, len(parts))
        parts.append(inputs(var, own, n_components))
        var += own.n_columns
    if var > n_variables:
        raise ParameterError(f"n_variables: got {n_variables}, leaves of {own} have {var}")
    return sum(parts[0] if len(parts) == 1 else product(*parts), n_nodes=1)


@takes(seq_len=Whole(1), n_states=Whole(1))
def hmm(
    seq_len: int,
    n_states: int,
    n_symbols: int | None = None,
    *,
    leaf: Leaf | None = None,
    homogeneous: bool = True,
    start: Any = None,
    transition: Any = None,
    emission: Any = None,
) -> SumNodes:
    """Make a hidden Markov model over sequences of one length.

    Parameters
    ----------
    seq_len, n_states : int
    n_symbols : int, optional
        For `Categorical` emissions.
    leaf : Leaf, optional
        Other emissions. Of a leaf of d variables time t has variables t d to t d + d - 1.
    homogeneous : bool
        Share transitions and emissions between all times.
    start : array, shape (n_states,), optional
        Probabilities of the first state. These three default to random draws of the circuit.
    transition : array, shape (n_states, n_states), optional
        Row i: probabilities of the states after state i.
    emission : array, shape (n_states, leaf.n_parameters), optional
        Parameters of the leaves.

    Returns
    -------
    SumNodes

    Raises
    ------
    ParameterError, ShapeError, DTypeError

    Notes
    -----
    Source: Rabiner, Proc. IEEE 77, 257 (1989).

    Examples
    --------
    >>> import rpukit as rk
    >>> pc = rk.Circuit(rk.circuits.hmm(10, 4, 7))
    >>> pc.n_variables, pc.n_parameters
    (10, 48)
    """
    if (n_symbols is None) == (leaf is None):
        got = "neither" if leaf is None else "both"
        raise ParameterError(f"n_symbols, leaf: got {got}, need one of them")
    kind = Categorical(n_values=n_symbols) if leaf is None else leaf  # type: ignore[arg-type]
    need_nodes(3 * seq_len, "hmm")
    block = _block_of(n_states)
    last = (seq_len - 1) * kind.n_columns
    emitted = inputs(last, kind, n_states, block_size=block, parameters=emission)
    state: Nodes = emitted
    first: SumNodes | None = None
    for time in range(seq_len - 2, -1, -1):
        if first is None:
            moved = first = sum(state, n_nodes=n_states, block_size=block, parameters=transition)
        else:
            moved = first.duplicate(state, tie=homogeneous)
        state = product(_emission(emitted, time, homogeneous, emission), moved)
    return sum(state, n_nodes=1, parameters=None if start is None else [start])


def _emission(emitted: InputNodes, time: int, tie: bool, parameters: Any) -> InputNodes:
    var = time * emitted.leaf.n_columns
    if tie:
        return emitted.duplicate(var)
    return inputs(
        var, emitted.leaf, emitted.n_node, block_size=emitted.block_size, parameters=parameters
    )


@takes(
    n_variables=Whole(1),
    n_nodes=Whole(1),
    n_repetitions=Whole(1),
    seed=Whole(0),
)
def rat_spn(
    n_variables: int,
    n_nodes: int,
    leaf: Leaf | Sequence[Leaf],
    *,
    depth: int | None = None,
    n_repetitions: int = 4,
    seed: int = 0,
) -> SumNodes:
    """Make a random tensorised structure: balanced random splits, repeated.

    Parameters
    ----------
    n_variables : int
    n_nodes : int
        Nodes of each region.
    leaf : Leaf or sequence of Leaf
    depth : int, optional
        Number of splits on the way to the leaves; default: until single variables.
    n_repetitions : int
    seed : int
        Of the splits.

    Returns
    -------
    SumNodes

    Raises
    ------
    ParameterError, DTypeError

    Notes
    -----
    All repetitions share the leaves.
    Source: Peharz et al., "Random sum-product networks", UAI 2019.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.Circuit(rk.circuits.rat_spn(6, 4, rk.circuits.Bernoulli())).n_variables
    6
    """
    most = n_variables if depth is None else integer(depth, "depth", low=1)
    need_nodes(n_variables * (1 + 2 * n_repetitions), "rat_spn")
    rng = np.random.default_rng(seed)
    block = _block_of(n_nodes)
    leaves: list[Nodes] = [
        inputs(v, _leaf_of(leaf, v), n_nodes, block_size=block) for v in range(n_variables)
    ]

    def region(variables: np.ndarray, left: int) -> Nodes:
        if len(variables) == 1:
            return leaves[int(variables[0])]
        if left == 0:
            return sum(product(*(leaves[v] for v in variables)), n_nodes=n_nodes, block_size=block)
        order = rng.permutation(variables)
        half = len(order) // 2
        both = product(region(order[:half], left - 1), region(order[half:], left - 1))
        return both if left == most else sum(both, n_nodes=n_nodes, block_size=block)

    every = np.arange(n_variables)
    return sum(*(region(every, most) for _ in range(n_repetitions)), n_nodes=1)

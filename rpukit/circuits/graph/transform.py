"""Graph transformations: deepcopy, merge, prune, grow.

All of them build new nodes; the circuit or nodes given stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rpukit._checks import Many, Maybe, Real, Whole, shown, takes
from rpukit.circuits.graph.nodes import (
    InputNodes,
    Nodes,
    ProductNodes,
    SumNodes,
    inputs,
    product,
    sum,
)
from rpukit.circuits.graph.traversal import walk
from rpukit.elementwise import exp, random_fill
from rpukit.errors import DTypeError, ParameterError, StructureError
from rpukit.random import Stream

__all__ = ["deepcopy", "grow", "merge", "prune"]

Array = Any
Getter = Callable[[Nodes], Any]
Remake = Callable[[Nodes, list[Nodes], Any], Nodes]


@takes(variables=Maybe(Many(Whole(0))))
def deepcopy(circuit: Any, *, variables: Sequence[int] | None = None) -> Any:
    """Copy the graph of a circuit, with its parameters and ties.

    Parameters
    ----------
    circuit : Circuit, Nodes or sequence of Nodes
        A circuit gives the parameters that it has learned, nodes those that they were given.
    variables : sequence of int, optional
        New number of each variable; default the same.

    Returns
    -------
    Nodes or list of Nodes
        A list for several roots.

    Raises
    ------
    DTypeError, ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> root = rk.circuits.hmm(3, 2, 4)
    >>> rk.circuits.deepcopy(root, variables=[2, 1, 5]).variables
    [1, 2, 5]
    """

    def remake(nodes: Nodes, children: list[Nodes], parameters: Any) -> Nodes:
        if isinstance(nodes, InputNodes):
            own = list(nodes.columns)
            own = own if variables is None else [_renamed(variables, v) for v in own]
            copy: Nodes = inputs(own, nodes.leaf, nodes.n_node, block_size=nodes.block_size)
        else:
            copy = same(nodes, children)
        copy._parameters = parameters
        return copy

    return rebuilt(circuit, remake)


def merge(*vectors: Nodes) -> Nodes:
    """Concatenate node vectors of one scope to one node vector.

    Parameters
    ----------
    *vectors : Nodes
        Of one kind, scope and block size; leaves of one variable and kind. Products must have
        factors of the same scopes, which are merged too where they differ.

    Returns
    -------
    Nodes
        Its nodes have the values of those of the first vector, then of the second, and so on.
        What differs has parameters of its own, tied no longer.

    Raises
    ------
    DTypeError, ParameterError
    StructureError
        If the vectors do not fit together.

    Examples
    --------
    >>> import rpukit as rk
    >>> a, b = (rk.circuits.mixture(2, 3, rk.circuits.Bernoulli()) for _ in range(2))
    >>> rk.Circuit(rk.circuits.merge(a, b)).log_likelihood([[0, 1]]).shape
    (1, 2)
    """
    if not vectors or not all(isinstance(nodes, Nodes) for nodes in vectors):
        raise DTypeError(f"vectors: got {vectors!r}, need one node vector or more")
    if all(nodes is vectors[0] for nodes in vectors):
        return vectors[0]
    for nodes in vectors[1:]:
        first = vectors[0]
        same_kind = (nodes.KIND, nodes.scope, nodes.block_size)
        if same_kind != (first.KIND, first.scope, first.block_size):
            raise StructureError(f"{first!r} and {nodes!r} differ in kind, scope or block size")
    merged: Any = {"input": _merged_inputs, "product": _merged_products, "sum": _merged_sums}
    made: Nodes = merged[vectors[0].KIND](vectors)
    return made


@takes(keep=Maybe(Real()), least=Maybe(Real()))
def prune(circuit: Any, *, keep: float | None = None, least: float | None = None) -> Any:
    """Remove the edges with the smallest flows.

    Parameters
    ----------
    circuit : Circuit
        Its counts decide: call `accumulate` with samples before.
    keep : float, in (0, 1], optional
        Share of the edges, tied ones counted once, that stay: those with the largest mean flow of
        a weight.
    least : float, from 0, optional
        Instead: edges stay whose mean flow of a weight, for one sample, is at least this.

    Returns
    -------
    Nodes or list of Nodes
        Of each block of sums at least one edge stays; weights are normalised again. Node vectors
        that nothing uses are left out.

    Raises
    ------
    DTypeError, ParameterError

    Notes
    -----
    An edge joins a block to a block: to prune single weights, `reblock` to 1 before.
    Source: Dang, Liu, Van den Broeck, "Sparse probabilistic circuits via pruning and growing",
    NeurIPS 2022.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> pc = rk.Circuit(rk.circuits.mixture(3, 8, rk.circuits.Bernoulli()), seed=0)
    >>> _ = pc.accumulate(np.random.default_rng(0).integers(0, 2, (50, 3)))
    >>> rk.Circuit(rk.circuits.prune(pc, keep=0.5)).n_edges
    4
    """
    if isinstance(circuit, (Nodes, list, tuple)) or not hasattr(circuit, "parameter_flows"):
        raise DTypeError(f"circuit: got {shown(circuit)}, need a Circuit with counts")
    if (keep is None) == (least is None):
        got = "both" if keep is not None else "neither"
        raise ParameterError(f"keep, least: got {got}, need one of them")
    if (keep is not None and not 0 < keep <= 1) or (least is not None and not least >= 0):
        raise ParameterError(
            f"keep, least: got {keep!r}, {least!r}, need keep in (0, 1] or least from 0"
        )
    if circuit._core.statistics.weight == 0:
        raise ParameterError(
            "circuit: no counts are held, so no edge has a flow; call accumulate with samples "
            "first"
        )
    sums = [n.source for n in circuit.layout.nodes if isinstance(n, SumNodes)]
    owners: dict[int, Any] = {nodes.number: nodes for nodes in sums}
    scores = {
        number: circuit.parameter_flows(nodes).mean(axis=(1, 2)) / circuit._core.statistics.weight
        for number, nodes in owners.items()
    }
    bar = 0.0 if least is None else least
    if keep is not None:
        every = np.sort(np.concatenate(list(scores.values())))[::-1]
        bar = every[max(1, round(keep * every.size)) - 1]
    kept = {n: _kept(owners[n].edges[0], score, bar) for n, score in scores.items()}

    def remake(nodes: Nodes, children: list[Nodes], parameters: Any) -> Nodes:
        if not isinstance(nodes, SumNodes):
            copy = same(nodes, children)
            copy._parameters = parameters
            return copy
        return _thinned(nodes, children, parameters, kept[nodes.source.number])

    return rebuilt(circuit, remake)


@takes(noise=Real(0), seed=Whole(0))
def grow(circuit: Any, *, noise: float = 0.3, seed: int = 0) -> Any:
    """Double every node but the roots: each weight becomes four.

    Parameters
    ----------
    circuit : Circuit, Nodes or sequence of Nodes
    noise : float, from 0
        Each new weight is half the old one times exp(noise z), z normal, so that learning can
        tell the copies apart; 0 leaves every likelihood as it was.
    seed : int

    Returns
    -------
    Nodes or list of Nodes

    Raises
    ------
    DTypeError, ParameterError

    Notes
    -----
    Source: Dang, Liu, Van den Broeck, "Sparse probabilistic circuits via pruning and growing",
    NeurIPS 2022.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.Circuit(rk.circuits.grow(rk.circuits.hmm(4, 8, 5))).n_edges
    784
    """
    noise = float(noise)
    roots, _ = opened(circuit)
    whole = {root.number for root in roots}
    stream, number = Stream.from_seed(seed), [0]

    def remake(nodes: Nodes, children: list[Nodes], parameters: Any) -> Nodes:
        copies = 1 if nodes.number in whole else 2
        if isinstance(nodes, InputNodes):
            copy: Nodes = inputs(
                nodes.columns, nodes.leaf, copies * nodes.n_node, block_size=nodes.block_size
            )
            copy._parameters = None if parameters is None else np.tile(parameters, (copies, 1))
        elif isinstance(nodes, ProductNodes):
            wide = [int(c.n_node > old.n_node) * old.n_node for c, old in _pairs(children, nodes)]
            table = np.concatenate([nodes.edges + k * np.array(wide) for k in range(copies)])
            copy = product(*children, node_edges=table, block_size=nodes.block_size)
        else:
            copy = _doubled(nodes, children, parameters, copies, noise, stream.child(number[0]))
            number[0] += 1
        return copy

    return rebuilt(circuit, remake)


# ---- helpers of all transformations ------------------------------------------------------------


def opened(circuit: Any) -> tuple[list[Nodes], Getter]:
    """Return the roots, and a function that gives the parameters of nodes (or None)."""
    if isinstance(circuit, Nodes):
        return [circuit], lambda nodes: nodes.parameters
    if isinstance(circuit, (list, tuple)) and all(isinstance(n, Nodes) for n in circuit):
        return list(circuit), lambda nodes: nodes.parameters
    if hasattr(circuit, "layout"):
        return list(circuit.layout.roots), circuit.parameters
    raise DTypeError(f"circuit: got {shown(circuit)}, need a Circuit or node vectors")


def rebuilt(circuit: Any, remake: Remake) -> Any:
    """Rebuild every node vector, children first; ``remake`` gets nodes, children, parameters.

    Tied vectors stay tied where their copies have one shape.
    """
    roots, parameters = opened(circuit)
    made: dict[int, Nodes] = {}
    old = list(walk(roots))
    for nodes in old:
        given = None if isinstance(nodes, ProductNodes) else parameters(nodes)
        made[nodes.number] = remake(nodes, [made[c.number] for c in nodes.children], given)
    owners: dict[Any, Nodes] = {}
    for nodes in sorted(old, key=lambda n: n.source is not n):  # owners first
        copy = made[nodes.number]
        if isinstance(copy, (InputNodes, SumNodes)):
            shape = (copy.n_node, getattr(copy, "parameter_shape", 0))
            copy.source = owners.setdefault((nodes.source.number, shape), copy)
            if copy.source is not copy:
                copy._parameters = None
    new = [made[root.number] for root in roots]
    return new[0] if len(new) == 1 else new


def same(nodes: Nodes, children: list[Nodes]) -> Nodes:
    """Make a vector of the same shape over other children, without parameters."""
    if isinstance(nodes, InputNodes):
        return inputs(nodes.columns, nodes.leaf, nodes.n_node, block_size=nodes.block_size)
    if isinstance(nodes, ProductNodes):
        return product(*children, node_edges=nodes.edges, block_size=nodes.block_size)
    assert isinstance(nodes, SumNodes)
    size, mask = nodes.block_size, nodes.zero_mask
    edges, n = nodes.edges, nodes.n_node
    return sum(*children, n_nodes=n, edges=edges, block_size=size, zero_mask=mask)


def _pairs(children: list[Nodes], nodes: Nodes) -> Any:
    return zip(children, nodes.children, strict=True)


def _renamed(variables: Sequence[int], var: int) -> int:
    if var >= len(variables):
        raise ParameterError(f"variables: got {len(variables)} numbers, need one for {var} too")
    return variables[var]


def _together(arrays: list[Any], name: str) -> Any:
    if all(array is None for array in arrays):
        return None
    if any(array is None for array in arrays):
        raise ParameterError(
            f"vectors: some {name} have parameters and some have none; set all of them, or none"
        )
    return np.concatenate(arrays)


def _merged_inputs(vectors: tuple[Any, ...]) -> Nodes:
    first = vectors[0]
    if any(nodes.leaf != first.leaf or nodes.columns != first.columns for nodes in vectors):
        raise StructureError(f"leaves of variable {first.var} differ: {[n.leaf for n in vectors]}")
    n, size = int(np.sum([nodes.n_node for nodes in vectors])), first.block_size
    copy = inputs(first.columns, first.leaf, n, block_size=size)
    copy._parameters = _together([nodes.parameters for nodes in vectors], "leaves")
    return copy


def _merged_products(vectors: tuple[Any, ...]) -> Nodes:
    scopes = [child.scope for child in vectors[0].children]
    columns, children = [], []
    for scope in scopes:
        factors, tables = [], []
        for nodes in vectors:
            at = [k for k, child in enumerate(nodes.children) if child.scope == scope]
            if not at or len(nodes.children) != len(scopes):
                raise StructureError(f"{vectors[0]!r} and {nodes!r} split their scope differently")
            factors.append(nodes.children[at[0]])
            tables.append(nodes.edges[:, at[0]])
        shared = all(factor is factors[0] for factor in factors)
        starts = [0] * len(factors) if shared else _starts([f.n_node for f in factors])
        columns.append(np.concatenate([t + s for t, s in zip(tables, starts, strict=True)]))
        children.append(merge(*factors))
    edges = np.stack(columns, axis=1)
    return product(*children, node_edges=edges, block_size=vectors[0].block_size)


def _merged_sums(vectors: tuple[Any, ...]) -> Nodes:
    children: dict[int, Nodes] = {c.number: c for nodes in vectors for c in nodes.children}
    starts = dict(zip(children, _starts([c.n_block for c in children.values()]), strict=True))
    edges, first = [], 0
    for nodes in vectors:
        places = [starts[c.number] + np.arange(c.n_block) for c in nodes.children]
        edges.append(np.stack([nodes.edges[0] + first, np.concatenate(places)[nodes.edges[1]]]))
        first += nodes.n_block
    masks = [nodes.zero_mask for nodes in vectors]
    if any(mask is not None for mask in masks):
        shapes = [nodes.parameter_shape for nodes in vectors]
        masks = [np.zeros(s, bool) if m is None else m for m, s in zip(masks, shapes, strict=True)]
    size = vectors[0].block_size
    copy = sum(
        *children.values(),
        n_nodes=first * size,
        edges=np.concatenate(edges, axis=1),
        block_size=size,
        zero_mask=_together(masks, "sums"),
    )
    copy._parameters = _together([nodes.parameters for nodes in vectors], "sums")
    return copy


def _starts(sizes: list[int]) -> list[int]:
    return [0, *np.cumsum(sizes)[:-1].tolist()]


def _kept(blocks: Array, scores: Array, bar: float) -> Array:
    """Mask edges whose score reaches the bar, and the first best one of each block."""
    keep = scores >= bar
    order = np.lexsort((np.arange(scores.size), -scores, blocks))
    keep[order[np.unique(blocks[order], return_index=True)[1]]] = True
    return keep


def _thinned(nodes: SumNodes, children: list[Nodes], parameters: Array, keep: Array) -> Nodes:
    owner = np.repeat(np.arange(len(children)), [child.n_block for child in children])
    used = np.isin(np.arange(len(children)), owner[nodes.edges[1][keep]])
    places = np.cumsum(used[owner]) - 1
    edges = np.stack([nodes.edges[0][keep], places[nodes.edges[1][keep]]])
    mask = None if nodes.zero_mask is None else nodes.zero_mask[keep]
    left = [child for child, use in zip(children, used, strict=True) if use]
    copy = sum(
        *left, n_nodes=nodes.n_node, edges=edges, block_size=nodes.block_size, zero_mask=mask
    )
    weights = parameters[keep]
    totals = np.zeros((copy.n_block, copy.block_size))
    np.add.at(totals, edges[0], weights.sum(axis=2))
    # A node that keeps no positive weight gets uniform ones.
    weights[(totals <= 0)[edges[0]]] = 1.0
    copy.set_parameters(weights)
    return copy


def _doubled(
    nodes: Any, children: list[Nodes], given: Any, copies: int, noise: float, stream: Stream
) -> Nodes:
    """Edges of each copy go to all copies of each child."""
    old = np.array([child.n_block for child in nodes.children])
    new = np.array([child.n_block for child in children])
    owner = np.repeat(np.arange(len(old)), old)[nodes.edges[1]]
    inside = nodes.edges[1] - (np.cumsum(old) - old)[owner]
    below = (np.cumsum(new) - new)[owner] + inside
    pairs, taken = [], []
    for copy in range(copies):
        for half in range(2):
            some = np.nonzero(half < (new // old)[owner])[0]
            blocks = nodes.edges[0][some] + copy * nodes.n_block
            pairs.append(np.stack([blocks, below[some] + half * old[owner][some]]))
            taken.append(some)
    some, size = np.concatenate(taken), nodes.block_size
    made = sum(
        *children,
        n_nodes=copies * nodes.n_node,
        edges=np.concatenate(pairs, axis=1),
        block_size=size,
        zero_mask=None if nodes.zero_mask is None else nodes.zero_mask[some],
    )
    if given is not None:
        draws = random_fill(stream, made.parameter_shape, "normal").astype(np.float64)
        made.set_parameters(given[some] * exp(noise * draws))
    return made

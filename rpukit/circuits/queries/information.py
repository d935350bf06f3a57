"""Entropies, divergences and moments: methods of `Circuit`.

All are float64 sums in a written order: children, leaves and values ascending.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import integer
from rpukit.circuits.core import CircuitLike, Core
from rpukit.circuits.graph.leaves import Leaf
from rpukit.circuits.graph.nodes import InputNodes, Nodes, ProductNodes, SumNodes
from rpukit.circuits.graph.normal import MultivariateNormal
from rpukit.circuits.graph.traversal import named
from rpukit.circuits.ops.normal import expected_normal
from rpukit.circuits.queries import leaf_moments as measures
from rpukit.circuits.queries.passes import both_ways, propagation_of
from rpukit.elementwise import log
from rpukit.errors import ParameterError, StructureError

__all__ = ["entropy", "expectation", "is_deterministic", "kl"]

Array = Any

NEGLIGIBLE = 1e-9  # less probability than this counts as none


def is_deterministic(self: CircuitLike) -> bool:
    """Check whether the children of each sum are mutually exclusive.

    Returns
    -------
    bool
        If True, `most_probable` is exact, and `entropy` and `kl` can be had. Children count as
        disjoint if they have no value of some variable in common; False may be said of
        circuits that exclude in other ways.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.Circuit(rk.circuits.mixture(2, 3, rk.circuits.Bernoulli())).is_deterministic()
    False
    """
    try:
        _need_deterministic(self._core)
    except StructureError:
        return False
    return True


def entropy(self: CircuitLike) -> float:
    """Compute the entropy of a deterministic circuit.

    Returns
    -------
    float, nats
        Differential where variables are numbers.

    Raises
    ------
    StructureError
        If two children of a sum may speak about one sample; the entropy of such circuits is
        hard.
    ParameterError
        If the circuit has several roots.

    Notes
    -----
    What counts as disjoint: see `is_deterministic`. Cost: one walk, and pairs of children
    times values.
    Source: Vergari, Choi, Liu, Teso, Van den Broeck, "A compositional atlas of tractable
    circuit operations", NeurIPS 2021.

    Examples
    --------
    >>> import rpukit as rk
    >>> side = rk.circuits.inputs(0, rk.circuits.Indicator(n_values=2), 2)
    >>> pc = rk.Circuit(rk.circuits.sum(side, n_nodes=1, parameters=[[0.5, 0.5]]))
    >>> round(pc.entropy(), 4)
    0.6931
    """
    core = self._core
    core.need_one_root("entropy")
    _need_deterministic(core)
    found: dict[int, Array] = {}
    for nodes in core.layout.nodes:
        below = [found[child.number] for child in nodes.children]
        if isinstance(nodes, InputNodes):
            found[nodes.number] = measures.entropy(*_leaf(core, nodes))
        elif isinstance(nodes, ProductNodes):
            found[nodes.number] = np.zeros(nodes.n_node)
            for k, part in enumerate(below):
                found[nodes.number] += part[nodes.edges[:, k]]
        elif isinstance(nodes, SumNodes):
            w = _dense(core, nodes)
            own = -_weighted_log(w, np.ones((1, w.shape[1])))[:, 0]
            found[nodes.number] = own + _mixed(w, np.concatenate(below)[:, None])[:, 0]
    return float(found[core.layout.roots[0].number][0])


def kl(self: CircuitLike, other: Any) -> float:
    """Compute the Kullback-Leibler divergence from another circuit: E log p - E log q.

    Parameters
    ----------
    other : Circuit
        q, of the same variables: deterministic as this one, and compatible: products of one
        scope split it alike.

    Returns
    -------
    float, nats
        inf if this circuit has samples that are impossible for the other (with more than 1e-9
        of its probability).

    Raises
    ------
    StructureError
        If one of the circuits is not deterministic, or they are not compatible.
    ParameterError
        If one of them has several roots, or they have different variables.

    Notes
    -----
    Cost: pairs of nodes with one scope. Source: as of `entropy`.

    Examples
    --------
    >>> import rpukit as rk
    >>> side = rk.circuits.inputs(0, rk.circuits.Indicator(n_values=2), 2)
    >>> p, q = (
    ...     rk.Circuit(rk.circuits.sum(side, n_nodes=1, parameters=[[w, 1 - w]]))
    ...     for w in (0.5, 0.25)
    ... )
    >>> round(p.kl(q), 4)
    0.1438
    """
    core, theirs = self._core, getattr(other, "_core", None)
    if not isinstance(theirs, Core):
        raise ParameterError(f"other: got {other!r}, need a Circuit")
    theirs.need_one_root("kl")
    if theirs.layout.n_variable != core.layout.n_variable:
        raise ParameterError(
            f"other: got a circuit of {theirs.layout.n_variable} variables, need "
            f"{core.layout.n_variable} as of this one"
        )
    own = entropy(self)
    _need_deterministic(theirs)
    mass, cross = _CrossEntropy(core, theirs).of_roots()
    return float(-own - cross) if mass > 1 - NEGLIGIBLE else np.inf


def expectation(self: CircuitLike, x: Any, *, missing: Any = None, power: int = 1) -> Array:
    """Compute the mean of each variable, or of its square, given what is known.

    Parameters
    ----------
    x, missing : array
        As in `log_likelihood`; all NaN for the mean without evidence.
    power : int
        1 for the mean, 2 for the mean square.

    Returns
    -------
    array, shape (n_sample, n_variables), float64
        x itself (or its square) where it is known; NaN for what is unknown of an impossible
        sample. Values of a table are its indices.

    Raises
    ------
    ShapeError, DTypeError, NonFiniteError, ParameterError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> coin = rk.circuits.inputs(0, rk.circuits.Bernoulli(), 1, parameters=[0.25])
    >>> rk.Circuit(rk.circuits.sum(coin, n_nodes=1)).expectation([[np.nan]])
    array([[0.25]])
    """
    core = self._core
    core.need_one_root("expectation")
    power = integer(power, "power", low=1, high=2, what="1 (mean) or 2 (mean square)")
    codes, numbers = core.encoder(x, missing)
    ones, usual = core.encoder.weights(None, len(codes)), propagation_of(core.parameters, None)
    flows = _device.to_numpy(both_ways(core, usual, (codes, numbers), ones).flows)
    codes, numbers = _device.to_numpy(codes), _device.to_numpy(numbers).astype(np.float64)
    total, whole = np.zeros(codes.shape), np.zeros(codes.shape)
    for one in core.parameters.rows.functions:
        if isinstance(one.leaf, MultivariateNormal):
            _add_normal(core, one, power, (flows, numbers), total, whole)
    for nodes in core.layout.inputs:
        if isinstance(nodes.leaf, MultivariateNormal):
            continue
        moments = measures.moments(*_leaf(core, nodes))[power - 1]
        for row, moment in zip(core.layout.rows[nodes.number], moments, strict=True):
            flow = flows[:, row].astype(np.float64)
            total[:, nodes.var] += flow * moment
            whole[:, nodes.var] += flow
    known = np.where(codes >= 0, codes.astype(np.float64), numbers)
    means = np.divide(total, whole, out=np.full(total.shape, np.nan), where=whole > 0)
    return np.where(np.isnan(known), means, known**power)


def _add_normal(
    core: Core, one: Any, power: int, run: tuple[Array, Array], total: Array, whole: Array
) -> None:
    """Add the expectations of variables of normal leaves, which depend on the sample."""
    flows, numbers = run
    moments = expected_normal(one, core.parameters.rows.parameters, numbers)[power - 1]
    rows, columns = (_device.to_numpy(a) for a in (one.rows, one.variable))
    for k, (row, own) in enumerate(zip(rows, columns.reshape(len(rows), -1), strict=True)):
        flow = flows[:, row, None].astype(np.float64)
        total[:, own] += flow * moments[:, k]
        whole[:, own] += flow


def _leaf(core: Core, nodes: InputNodes) -> tuple[Leaf, Array]:
    return nodes.leaf, core.parameters.get(nodes.source)


def _dense(core: Core, nodes: SumNodes) -> Array:
    """Weights (n_node, children of all vectors), each row adding up to 1 in float64."""
    n_child = sum(child.n_node for child in nodes.children)
    out = np.zeros((nodes.n_node, n_child))
    size, child_size = nodes.block_size, nodes.child_block_size
    tiles = out.reshape(nodes.n_block, size, n_child // child_size, child_size)
    tiles[nodes.edges[0], :, nodes.edges[1], :] = core.parameters.get(nodes.source)
    return out / np.add.accumulate(out, axis=1)[:, -1:]


def _need_deterministic(core: Core) -> None:
    """Check that the children of each sum have disjoint supports in some variable."""
    supports: dict[int, dict[int, Array]] = {}
    left = {nodes.number: 0 for nodes in core.layout.nodes}
    for nodes in core.layout.nodes:
        for child in nodes.children:
            left[child.number] += 1
    for nodes in core.layout.nodes:
        below = [supports[child.number] for child in nodes.children]
        if isinstance(nodes, InputNodes):
            possible = measures.support(*_leaf(core, nodes))
            supports[nodes.number] = dict.fromkeys(nodes.columns, possible)
        elif isinstance(nodes, ProductNodes):
            supports[nodes.number] = {
                v: possible[nodes.edges[:, k]]
                for k, part in enumerate(below)
                for v, possible in part.items()
            }
        elif isinstance(nodes, SumNodes):
            linked = _dense(core, nodes) > 0
            joined = {v: _stacked([part[v] for part in below]) for v in below[0]}
            _check_disjoint(nodes, linked, joined)
            supports[nodes.number] = {v: _any(linked, s) for v, s in joined.items()}
        for child in nodes.children:  # free supports that are not needed again
            left[child.number] -= 1
            if not left[child.number]:
                del supports[child.number]


class _CrossEntropy:
    """Cross-entropies of pairs of nodes n of p, m of q: sums of p_n [q_m > 0], p_n log q_m."""

    def __init__(self, p: Core, q: Core) -> None:
        self.p, self.q = p, q
        self.found: dict[tuple[int, int], tuple[Array, Array]] = {}
        self.dense: dict[tuple[int, int], Array] = {}

    def of_roots(self) -> tuple[float, float]:
        stack = [(self.p.layout.roots[0], self.q.layout.roots[0])]
        top = (stack[0][0].number, stack[0][1].number)
        while stack:
            n, m = stack[-1]
            open_pairs = [
                (a, b) for a, b in _parts(n, m) if (a.number, b.number) not in self.found
            ]
            if open_pairs:
                stack.extend(open_pairs)
                continue
            stack.pop()
            if (n.number, m.number) not in self.found:
                self.found[n.number, m.number] = self._pair(n, m)
        mass, cross = self.found[top]
        return float(mass[0, 0]), float(cross[0, 0])

    def _pair(self, n: Nodes, m: Nodes) -> tuple[Array, Array]:
        below = [self.found[a.number, b.number] for a, b in _parts(n, m)]
        if isinstance(n, SumNodes):
            w = self._weights(self.p, n)
            return (
                _mixed(w, np.concatenate([part[0] for part in below])),
                _mixed(w, np.concatenate([part[1] for part in below])),
            )
        if isinstance(m, SumNodes):
            w = self._weights(self.q, m)
            mass = np.concatenate([part[0] for part in below], axis=1)
            cross = np.concatenate([part[1] for part in below], axis=1)
            linked = (w > 0).astype(np.float64)
            return _mixed(linked, mass.T).T, (
                _mixed(linked, cross.T) + _weighted_log(w, mass, linked)
            ).T
        if isinstance(n, InputNodes) and isinstance(m, InputNodes):
            if n.columns != m.columns:
                raise StructureError(
                    f"{n!r} and {m!r} have their variables in the orders {n.columns} and "
                    f"{m.columns}, need one order"
                )
            return measures.cross_entropy(_leaf(self.p, n), _leaf(self.q, m))
        mass = np.ones((n.n_node, m.n_node))
        cross = np.zeros((n.n_node, m.n_node))
        for (a, b), (part, part_cross) in zip(_parts(n, m), below, strict=True):
            at = np.ix_(_column(n, a), _column(m, b))
            cross = cross * part[at] + mass * part_cross[at]
            mass = mass * part[at]
        return mass, cross

    def _weights(self, core: Core, nodes: SumNodes) -> Array:
        key = (id(core), nodes.number)
        if key not in self.dense:
            self.dense[key] = _dense(core, nodes)
        return self.dense[key]


def _parts(n: Nodes, m: Nodes) -> list[tuple[Nodes, Nodes]]:
    """List the pairs of children that determine a pair of node vectors."""
    if isinstance(n, SumNodes):
        return [(child, m) for child in n.children]
    if isinstance(m, SumNodes):
        return [(n, child) for child in m.children]
    if isinstance(n, InputNodes) and isinstance(m, InputNodes):
        return []
    by_scope = {child.scope: child for child in m.children}
    if {child.scope for child in n.children} != set(by_scope) or not by_scope:
        raise StructureError(
            f"{n!r} and {m!r} split their scope differently: the circuits are not compatible"
        )
    return [(child, by_scope[child.scope]) for child in n.children]


def _column(nodes: Any, child: Nodes) -> Array:
    return nodes.edges[:, nodes.children.index(child)]


def _mixed(w: Array, below: Array) -> Array:
    """Multiply weights (n, children) and values (children, k), children ascending."""
    out = np.zeros((w.shape[0], below.shape[1]))
    for column, line in zip(w.T, below, strict=True):
        out += column[:, None] * line
    return out


def _weighted_log(w: Array, below: Array, times: Array | None = None) -> Array:
    """Sum w log w (or ``times`` log w) times ``below`` (k, children) over children."""
    possible = w > 0
    logs = np.where(possible, log(np.where(possible, w, 1.0)), 0.0)
    return _mixed((w if times is None else times) * logs, below.T)


def _stacked(supports: list[Array]) -> Array:
    widest = max(s.shape[1] for s in supports)
    return np.concatenate([np.pad(s, ((0, 0), (0, widest - s.shape[1]))) for s in supports])


def _any(linked: Array, supports: Array) -> Array:
    return (linked.astype(np.float32) @ supports.astype(np.float32)) > 0


def _check_disjoint(nodes: SumNodes, linked: Array, supports: dict[int, Array]) -> None:
    """Raise if two children of a node share values of every variable."""
    n_child = linked.shape[1]
    overlap = ~np.eye(n_child, dtype=bool)
    for possible in supports.values():
        if not overlap.any():
            return
        wide = possible.astype(np.float32)
        overlap &= (wide @ wide.T) > 0
    clash = np.argwhere(_any(linked, overlap) & linked)
    if clash.size:
        raise StructureError(
            f"{nodes!r} is not deterministic: children {clash[0][1]} and others of node "
            f"{clash[0][0]} share values of {named(nodes.scope)}"
        )

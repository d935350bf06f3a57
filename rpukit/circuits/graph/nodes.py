"""Node vectors, of which circuits are built.

A circuit is a directed graph of *node vectors*, nodes with one scope (the variables they depend
on). `inputs` makes leaves, `product` multiplies nodes of disjoint scopes, `sum` mixes nodes of one
scope. Compiling and learning leave them alone; `Circuit.write_back` stores learned parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from rpukit._checks import integer, need_memory, real_array, shown
from rpukit.circuits.graph.leaves import Leaf, as_leaf
from rpukit.circuits.graph.traversal import (
    brief,
    columns_of,
    edge_pairs,
    edge_table,
    named,
    normalised_tiles,
    sized,
    walk,
)
from rpukit.errors import DTypeError, ParameterError, ShapeError, StructureError

__all__ = ["InputNodes", "Nodes", "ProductNodes", "SumNodes", "inputs", "product", "sum"]

_numbers = count()
_total = sum  # the builtin, which a function below hides


class Nodes:
    """A vector of nodes with one scope: base of `InputNodes`, `ProductNodes`, `SumNodes`.

    Attributes
    ----------
    n_node, block_size, n_block : int
    children : tuple of Nodes
    scope : int
        Bit v is set if the nodes depend on variable v.
    source : Nodes
        Whose parameters these nodes use: themselves, unless made by `duplicate`.
    """

    KIND = "node"

    def __init__(self, children: tuple[Nodes, ...], n_node: int, block_size: int) -> None:
        self.number = next(_numbers)
        self.children = children
        self.n_node, self.block_size = sized(n_node, block_size)
        self.scope = 0
        self.source: Nodes = self
        self._parameters: Any = None

    @property
    def n_block(self) -> int:
        """Number of blocks."""
        return self.n_node // self.block_size

    @property
    def variables(self) -> list[int]:
        """Variables of the scope, ascending."""
        bits = bin(self.scope)[:1:-1]
        return [v for v, bit in enumerate(bits) if bit == "1"]

    @property
    def parameters(self) -> Any:
        """Parameters as set or learned, of the source when tied; None before any are set."""
        return self.source._parameters

    def set_parameters(self, parameters: Any) -> Nodes:
        """Set the parameters, of the source when tied.

        Parameters
        ----------
        parameters : array
            Of sums: (n_edge, block_size, child_block_size), or (n_node, n_child_nodes); they are
            normalised. Of inputs: (n_node, leaf.n_parameters).

        Returns
        -------
        Nodes
            These nodes.

        Raises
        ------
        ShapeError, ParameterError
        """
        self.source._parameters = self.source.checked(parameters)
        return self

    def checked(self, parameters: Any) -> Any:
        """Check parameters that a user gave, and normalise weights.

        Parameters
        ----------
        parameters : array
            As of `set_parameters`.

        Returns
        -------
        array, float64
        """
        raise DTypeError(f"{self!r} has no parameters")

    def walk(self) -> Iterator[Nodes]:
        """Go through all nodes below, children first, each once, these nodes last.

        Returns
        -------
        iterator of Nodes
        """
        return walk([self])

    def __repr__(self) -> str:
        return f"<{self.KIND} #{self.number}: {self.n_node} nodes over {{{brief(self.scope)}}}>"


class InputNodes(Nodes):
    """Leaves of one variable, or of those of a `MultivariateNormal`; made by `inputs`.

    Attributes
    ----------
    leaf : Leaf
    columns : tuple of int
        Its variables, in the order of the leaf's parameters.
    var : int
        The first of them.
    """

    KIND = "input"

    def __init__(self, columns: tuple[int, ...], leaf: Leaf, n_node: int, block_size: int) -> None:
        Nodes.__init__(self, (), n_node, block_size)
        self.var, self.columns, self.leaf = columns[0], columns, leaf
        for var in columns:
            self.scope |= 1 << var

    def duplicate(self, var: Any = None, *, tie: bool = True) -> InputNodes:
        """Make the same leaves for another variable, with the same parameters if ``tie``.

        Parameters
        ----------
        var : int or sequence of int, optional
            As of `inputs`.
        tie : bool
            Share the parameters; else copy them.

        Returns
        -------
        InputNodes
        """
        own = self.columns if var is None else var
        copy = inputs(own, self.leaf, self.n_node, block_size=self.block_size)
        _tie(copy, self, tie)
        return copy

    def checked(self, parameters: Any) -> Any:
        return self.leaf.checked(parameters, self.n_node)


class ProductNodes(Nodes):
    """Products of nodes of disjoint scopes; made by `product`.

    Attributes
    ----------
    edges : array, shape (n_node, n_children), int
        Node of each child that a product multiplies.
    """

    KIND = "product"

    def __init__(self, children: tuple[Nodes, ...], edges: np.ndarray, block_size: int) -> None:
        Nodes.__init__(self, children, len(edges), block_size)
        self.edges = edges
        for child in children:
            self.scope |= child.scope

    def duplicate(self, *children: Nodes) -> ProductNodes:
        """Make the same products over other children of the same sizes.

        Parameters
        ----------
        *children : Nodes

        Returns
        -------
        ProductNodes
        """
        _same_sizes(self, children)
        return product(*children, node_edges=self.edges, block_size=self.block_size)


class SumNodes(Nodes):
    """Mixtures of nodes of one scope; made by `sum`.

    Attributes
    ----------
    edges : array, shape (2, n_edge), int
        Pairs of a block of sums and a block of children; children are counted one after another.
    child_block_size : int
    zero_mask : array, shape (n_edge, block_size, child_block_size), bool, or None
        Weights that are 0 from the start.
    """

    KIND = "sum"

    def __init__(
        self, children: tuple[Nodes, ...], n_node: int, edges: np.ndarray, block_size: int
    ) -> None:
        Nodes.__init__(self, children, n_node, block_size)
        self.edges = edges
        self.child_block_size = children[0].block_size
        self.scope = children[0].scope
        self.zero_mask: np.ndarray | None = None

    @property
    def parameter_shape(self) -> tuple[int, int, int]:
        """Shape of the weights: (n_edge, block_size, child_block_size)."""
        return self.edges.shape[1], self.block_size, self.child_block_size

    def duplicate(self, *children: Nodes, tie: bool = True) -> SumNodes:
        """Make the same sums over other children of the same sizes, sharing weights if ``tie``.

        Parameters
        ----------
        *children : Nodes
        tie : bool
            Share the parameters; else copy them.

        Returns
        -------
        SumNodes
        """
        _same_sizes(self, children)
        copy = sum(*children, n_nodes=self.n_node, edges=self.edges, block_size=self.block_size)
        copy.zero_mask = self.zero_mask
        _tie(copy, self, tie)
        return copy

    def checked(self, parameters: Any) -> Any:
        return normalised_tiles(self, _n_nodes(self.children), parameters)


def inputs(
    var: Any, leaf: Leaf, n_nodes: int, *, block_size: int = 1, parameters: Any = None
) -> InputNodes:
    """Make a vector of leaves of one variable, or of those of a `MultivariateNormal`.

    Parameters
    ----------
    var : int, from 0, or sequence of int
        Which variable, that is, which column of the data. Of a leaf of d variables all of them, or
        the first of d that follow one another.
    leaf : Leaf
        Its kind, such as ``rk.circuits.Categorical(n_values=4)``.
    n_nodes : int
    block_size : int
        Nodes that belong together in block-sparse edges.
    parameters : array, shape (n_nodes, leaf.n_parameters), optional
        Default: drawn when the circuit is made.

    Returns
    -------
    InputNodes

    Raises
    ------
    ParameterError, ShapeError, DTypeError

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.circuits.inputs(0, rk.circuits.Bernoulli(), 2).variables
    [0]
    """
    columns = columns_of(var, as_leaf(leaf).n_columns)
    need_memory(8 * sized(n_nodes, block_size)[0] * leaf.n_parameters, "inputs")
    nodes = InputNodes(columns, leaf, n_nodes, block_size)
    return nodes if parameters is None else nodes.set_parameters(parameters)  # type: ignore[return-value]


def product(
    *children: Nodes, edges: Any = None, node_edges: Any = None, block_size: int | None = None
) -> ProductNodes:
    """Make a vector of products.

    Parameters
    ----------
    *children : Nodes
        Node vectors of disjoint scopes.
    edges : array of int, shape (n_block, n_children), optional
        Which block of each child a block multiplies. Default: block i of each child.
    node_edges : array of int, shape (n_node, n_children), optional
        The same for single nodes.
    block_size : int, optional
        Default: that of the children.

    Returns
    -------
    ProductNodes

    Raises
    ------
    StructureError
        If scopes overlap: the circuit would not be decomposable.
    ShapeError, ParameterError, DTypeError

    Examples
    --------
    >>> import rpukit as rk
    >>> a, b = (rk.circuits.inputs(v, rk.circuits.Bernoulli(), 3) for v in range(2))
    >>> rk.circuits.product(a, b).variables
    [0, 1]
    """
    _node_vectors(children)
    seen = 0
    for k, child in enumerate(children):
        if seen & child.scope:
            other = next(c for c in children[:k] if c.scope & child.scope)
            raise StructureError(
                f"a product of {other!r} and {child!r} is not decomposable: both depend on "
                f"{named(other.scope & child.scope)}"
            )
        seen |= child.scope
    if block_size is not None:
        block_size = integer(block_size, "block_size", low=1)
    size = children[0].block_size if block_size is None else block_size
    sizes = [child.n_node for child in children]
    if edges is not None and node_edges is not None:
        raise ParameterError("edges, node_edges: got both, need one of them or neither")
    if node_edges is not None:
        table = edge_table(node_edges, sizes, 1, "node_edges")
    elif edges is not None:
        if {child.block_size for child in children} != {size}:
            raise StructureError(
                f"edges: children have block sizes {[c.block_size for c in children]}, need "
                f"{size} for all; give node_edges instead"
            )
        table = edge_table(edges, sizes, size, "edges")
    elif len(set(sizes)) > 1:
        raise ShapeError(f"children have {sizes} nodes: give edges, or equal numbers")
    else:
        table = np.repeat(np.arange(sizes[0])[:, None], len(children), axis=1)
    return ProductNodes(children, table, size)


def sum(
    *children: Nodes,
    n_nodes: int,
    edges: Any = None,
    block_size: int = 1,
    parameters: Any = None,
    zero_mask: Any = None,
) -> SumNodes:
    """Make a vector of sums (mixtures).

    Parameters
    ----------
    *children : Nodes
        Node vectors of one scope and one block size.
    n_nodes : int
    edges : array, optional
        Shape (2, n_edge) of int: pairs of a block of sums and a block of children, which are
        counted one after another. Shape (n_block, n_child_block) of bool: a mask. Default: all.
    block_size : int
    parameters : array, optional
        Weights, shape (n_edge, block_size, child_block_size), or (n_nodes, n_child_nodes); they
        are normalised. Default: drawn when the circuit is made.
    zero_mask : array, shape (n_edge, block_size, child_block_size), bool, optional
        Weights that start, and with ``keep_zeros`` stay, at 0.

    Returns
    -------
    SumNodes

    Raises
    ------
    StructureError
        If scopes differ: the circuit would not be smooth.
    ShapeError, ParameterError, DTypeError

    Examples
    --------
    >>> import rpukit as rk
    >>> leaves = rk.circuits.inputs(0, rk.circuits.Bernoulli(), 3)
    >>> rk.circuits.sum(leaves, n_nodes=1).parameter_shape
    (3, 1, 1)
    """
    _node_vectors(children)
    for child in children[1:]:
        if child.scope != children[0].scope:
            raise StructureError(
                f"a sum of {children[0]!r} and {child!r} is not smooth: only one of them depends "
                f"on {named(children[0].scope ^ child.scope)}"
            )
        if child.block_size != children[0].block_size:
            raise StructureError(
                f"children of a sum need one block size, got {[c.block_size for c in children]}"
            )
    n_node, block_size = sized(n_nodes, block_size)
    n_child_block = _total(child.n_block for child in children)
    if edges is None:
        need_memory(8 * n_node * _n_nodes(children), "sum")
    pairs = edge_pairs(edges, n_node // block_size, n_child_block)
    nodes = SumNodes(children, n_node, pairs, block_size)
    if zero_mask is not None:
        mask = real_array(zero_mask, "zero_mask").astype(bool)
        if mask.shape != nodes.parameter_shape:
            raise ShapeError(f"zero_mask: got shape {mask.shape}, need {nodes.parameter_shape}")
        nodes.zero_mask = mask
    return nodes if parameters is None else nodes.set_parameters(parameters)  # type: ignore[return-value]


def _node_vectors(children: tuple[Any, ...]) -> None:
    if not children:
        raise StructureError("children: got none, need one node vector or more")
    for child in children:
        if not isinstance(child, Nodes):
            raise DTypeError(f"children: got {shown(child)}, need node vectors")


def _n_nodes(children: Sequence[Nodes]) -> int:
    return _total(child.n_node for child in children)


def _same_sizes(nodes: Nodes, children: tuple[Any, ...]) -> None:
    _node_vectors(children)
    old, new = ([(c.n_node, c.block_size) for c in some] for some in (nodes.children, children))
    if old != new:
        raise StructureError(f"children: got (n_node, block_size) {new}, need {old}")


def _tie(copy: Nodes, nodes: Nodes, tie: bool) -> None:
    if tie:
        copy.source = nodes.source
    elif nodes.parameters is not None:
        copy.set_parameters(nodes.parameters)
